// Command wirevectors writes the project's own small set of wire vectors, using only encoding/gob and
// golang/snappy: go run . ../../vectors/wire
//
// Every stream is read back by Go's own decoder before it is written. The files' names begin with "own_".
package main

import (
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/golang/snappy"
)

type Envelope struct{ Message any }
type CompressionAlgorithm string
type MsgClientHello struct {
	Hostname, Info, Version, SyncerType string
	SupportsDecoderRestart              bool
	SupportedCompressionAlgorithms      []CompressionAlgorithm
	SupportsModernPolicyKeys            bool
	ClientConnID                        uint64
}
type MsgServerHello struct {
	Version, SyncerType         string
	SupportsNodeResourceUpdates bool
	ServerConnID                uint64
}
type MsgDecoderRestart struct {
	Message              string
	CompressionAlgorithm CompressionAlgorithm
}
type MsgACK struct{}
type MsgSyncStatus struct{ SyncStatus uint8 }
type MsgPing struct{ Timestamp time.Time }
type MsgPong struct{ PingTimestamp, PongTimestamp time.Time }
type SerializedUpdate struct {
	Key               string
	Value             []byte
	Revision          any
	V3ResourceVersion string
	TTL               time.Duration
	UpdateType        uint8
}
type MsgKVs struct{ KVs []SerializedUpdate }
type MsgFuture struct{ A int }

type M = map[string]any

func tj(t time.Time) any {
	if t.IsZero() {
		return M{"zero": true}
	}
	b, _ := t.GobEncode()
	return M{"unix_sec": t.Unix(), "nsec": t.Nanosecond(), "gob_hex": hex.EncodeToString(b)}
}
func desc(m any) any {
	switch m := m.(type) {
	case nil:
		return M{"type": nil}
	case MsgClientHello:
		a := []string{}
		for _, x := range m.SupportedCompressionAlgorithms {
			a = append(a, string(x))
		}
		return M{"type": "MsgClientHello", "hostname": m.Hostname, "info": m.Info, "version": m.Version, "syncer_type": m.SyncerType, "supports_decoder_restart": m.SupportsDecoderRestart, "supported_compression_algorithms": a, "supports_modern_policy_keys": m.SupportsModernPolicyKeys, "client_conn_id": strconv.FormatUint(m.ClientConnID, 10)}
	case MsgServerHello:
		return M{"type": "MsgServerHello", "version": m.Version, "syncer_type": m.SyncerType, "supports_node_resource_updates": m.SupportsNodeResourceUpdates, "server_conn_id": strconv.FormatUint(m.ServerConnID, 10)}
	case MsgDecoderRestart:
		return M{"type": "MsgDecoderRestart", "message": m.Message, "compression_algorithm": string(m.CompressionAlgorithm)}
	case MsgACK:
		return M{"type": "MsgACK"}
	case MsgSyncStatus:
		return M{"type": "MsgSyncStatus", "sync_status": m.SyncStatus}
	case MsgPing:
		return M{"type": "MsgPing", "timestamp": tj(m.Timestamp)}
	case MsgPong:
		return M{"type": "MsgPong", "ping_timestamp": tj(m.PingTimestamp), "pong_timestamp": tj(m.PongTimestamp)}
	case MsgKVs:
		kvs := []any{}
		for _, u := range m.KVs {
			var v, r any
			if len(u.Value) > 0 {
				v = string(u.Value)
			}
			if u.Revision != nil {
				r = M{"go_type": fmt.Sprintf("%T", u.Revision), "value": fmt.Sprintf("%v", u.Revision)}
			}
			kvs = append(kvs, M{"key": u.Key, "value": v, "revision": r, "v3_resource_version": u.V3ResourceVersion, "ttl_ns": int64(u.TTL), "update_type": u.UpdateType})
		}
		return M{"type": "MsgKVs", "kvs": kvs}
	}
	panic(m)
}

func enc(ms ...any) ([]byte, []int) {
	var b bytes.Buffer
	e := gob.NewEncoder(&b)
	ends := []int{}
	for _, m := range ms {
		if err := e.Encode(Envelope{m}); err != nil {
			panic(err)
		}
		ends = append(ends, b.Len())
	}
	return b.Bytes(), ends
}
func descs(ms []any) []any {
	d := []any{}
	for _, m := range ms {
		d = append(d, desc(m))
	}
	return d
}

var dir string

func write(name string, v M) {
	v["name"] = name
	j, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(dir+"/own_"+name+".json", append(j, '\n'), 0o644); err != nil {
		panic(err)
	}
}
func stream(name, category, direction, description, class string, bad []byte, ms ...any) {
	b, ends := enc(ms...)
	ex := M{"outcome": "ok"}
	if class != "" {
		ex = M{"outcome": "error", "error_class": class}
		b = append(b, bad...)
	}
	// Go has to agree.
	d := gob.NewDecoder(bytes.NewReader(b))
	n := 0
	var err error
	for {
		var e Envelope
		if err = d.Decode(&e); err != nil {
			break
		}
		n++
	}
	if n != len(ms) || (err.Error() == "EOF") != (class == "") {
		panic(fmt.Sprint(name, n, err))
	}
	write(name, M{"category": category, "direction": direction, "description": description, "origin": "Go encoding/gob", "encoding": "gob", "hex": hex.EncodeToString(b), "decoded": descs(ms), "message_ends": ends, "expect": ex})
}
func sn(b []byte) []byte {
	var o bytes.Buffer
	w := snappy.NewBufferedWriter(&o)
	w.Write(b)
	w.Close()
	return o.Bytes()
}

func main() {
	dir = os.Args[1]
	p := "github.com/projectcalico/typha/pkg/syncproto."
	for _, m := range []any{MsgClientHello{}, MsgServerHello{}, MsgDecoderRestart{}, MsgACK{}, MsgSyncStatus{}, MsgPing{}, MsgPong{}, MsgKVs{}} {
		gob.RegisterName(p+fmt.Sprintf("%T", m)[5:], m)
	}
	now := time.Unix(1700000000, 123456789).UTC()
	hello := MsgClientHello{"node-7", "an agent", "v3.32.0", "felix", true, []CompressionAlgorithm{"snappy", "zstd"}, true, 77}
	up := func(k, v string, r any, t uint8) SerializedUpdate {
		return SerializedUpdate{Key: k, Value: []byte(v), Revision: r, UpdateType: t}
	}
	kvs := MsgKVs{[]SerializedUpdate{
		up("/calico/v1/config/LogSeverityScreen", "Info", "12", 1),
		{Key: "/calico/resources/v3/projectcalico.org/profiles/kns.default", Value: []byte(`{"kind":"Profile"}`), Revision: "1309", V3ResourceVersion: "1309", TTL: 1500 * time.Millisecond, UpdateType: 2},
		up("/calico/v1/config/Gone", "", "", 3),
	}}
	stream("single_status", "single", "s2c", "In sync.", "", nil, MsgSyncStatus{2})
	stream("single_nil", "single", "either", "A nil message.", "", nil, nil)
	stream("single_kvs_revisions", "single", "s2c", "Revisions of several Go types.", "", nil, MsgKVs{[]SerializedUpdate{
		up("/a", "1", 12, 1), up("/b", "2", nil, 1), up("/c", "3", 1.5e9, 1), up("/d", "4", []string{"x", "", "y"}, 1),
		up("/e", "5", []byte("rev"), 1), up("/f", "6", complex(1, -2), 1), up("/g", "7", int8(-3), 1), up("/h", "8", true, 1), up("/i", "9", []float64{0.25, 1e-7}, 1)}})
	stream("stream_server", "stream", "s2c", "A plain session's server direction.", "", nil, MsgServerHello{"v1", "felix", true, 1 << 40}, kvs, MsgSyncStatus{1}, MsgPing{now}, kvs, MsgSyncStatus{2}, MsgPing{now})
	stream("stream_client", "stream", "c2s", "A client's direction.", "", nil, hello, MsgACK{}, MsgACK{}, MsgPong{PingTimestamp: now}, MsgPong{now, now})
	stream("malformed_http", "malformed", "c2s", "An HTTP request instead of a hello.", "duplicate_or_reserved_type_id", []byte("GET /metrics HTTP/1.1\r\nHost: localhost:5473\r\nUser-Agent: somebody who has mixed up his ports\r\n\r\n"))
	b, _ := enc(MsgSyncStatus{2})
	stream("malformed_truncated", "malformed", "s2c", "The input ends inside a message.", "truncated", []byte{70, 1, 2}, MsgSyncStatus{2})
	stream("malformed_definition_twice", "malformed", "s2c", "The stream begins again without a new decoder.", "duplicate_or_reserved_type_id", b, MsgSyncStatus{2})
	stream("malformed_integer", "malformed", "s2c", "A length of nine bytes.", "bad_uint", []byte{0xf7, 1, 1, 1, 1, 1, 1, 1, 1, 1}, MsgSyncStatus{2})
	type serverHello struct {
		Extra                       map[string][]int
		ServerConnID                uint64
		Any                         any
		Version                     string
		SupportsNodeResourceUpdates bool
		Next                        *struct{ A, B []string }
	}
	{
		var o bytes.Buffer
		e := gob.NewEncoder(&o)
		gob.RegisterName("future/extra", MsgFuture{})
		// The same registered name for another type needs another process; the envelope is patched instead.
		type MsgServerHello2 = serverHello
		gob.RegisterName(p+"MsgServerHellO", MsgServerHello2{})
		v := MsgServerHello2{Extra: map[string][]int{"a": {1, 2, 3}}, ServerConnID: 9, Any: MsgFuture{3}, Version: "v9", SupportsNodeResourceUpdates: true, Next: &struct{ A, B []string }{[]string{"x"}, nil}}
		if err := e.Encode(Envelope{v}); err != nil {
			panic(err)
		}
		b := bytes.Replace(o.Bytes(), []byte("MsgServerHellO"), []byte("MsgServerHello"), 1)
		write("otherversion_server_hello", M{"category": "otherversion", "direction": "s2c", "description": "A server hello with fields that nobody knows yet.", "origin": "Go encoding/gob", "encoding": "gob", "hex": hex.EncodeToString(b), "decoded": descs([]any{MsgServerHello{"v9", "", true, 9}}), "message_ends": []int{len(b)}, "expect": M{"outcome": "ok"}})
	}
	// Two values in one frame are legal; the second is dropped.
	{
		b, ends := enc(MsgSyncStatus{1}, MsgSyncStatus{2})
		last := append([]byte{}, b[ends[0]:]...)
		last = append(last, 0x55, 0x66)
		last[0] += 2
		b = append(b[:ends[0]:ends[0]], last...)
		write("legal_rest_of_frame", M{"category": "legal", "direction": "s2c", "description": "Bytes behind a value in its frame are dropped.", "origin": "Go encoding/gob, patched", "encoding": "gob", "hex": hex.EncodeToString(b), "decoded": descs([]any{MsgSyncStatus{1}, MsgSyncStatus{2}}), "message_ends": []int{ends[0], len(b)}, "expect": M{"outcome": "ok"}})
	}
	{
		ms := []any{kvs, MsgSyncStatus{2}}
		b, ends := enc(ms...)
		z := sn(b)
		write("snappy_stream", M{"category": "snappy", "direction": "s2c", "description": "A snapshot in one chunk.", "origin": "golang/snappy", "encoding": "snappy+gob", "hex": hex.EncodeToString(z), "decoded": descs(ms), "message_ends": ends, "expect": M{"outcome": "ok"}})
		bad := append(append([]byte{}, z...), 0x02, 0, 0, 0)
		write("snappy_reserved", M{"category": "snappy", "direction": "s2c", "description": "A chunk of a reserved type.", "origin": "golang/snappy, patched", "encoding": "snappy+gob", "hex": hex.EncodeToString(bad), "decoded": descs(ms), "message_ends": ends, "expect": M{"outcome": "error", "error_class": "snappy"}})
	}
	for name, syncer := range map[string]string{"session_snappy": "felix", "session_snappy_bgp": "bgp", "session_snappy_tunnel_ip_allocation": "tunnel-ip-allocation", "session_snappy_node_status": "node-status"} {
		hello := hello
		hello.SyncerType = syncer
		s1 := []any{MsgServerHello{"v1", syncer, true, 5}, MsgDecoderRestart{"compress", "snappy"}}
		s2 := []any{kvs, MsgDecoderRestart{"end of snapshot", "snappy"}}
		s3 := []any{MsgSyncStatus{2}, kvs, MsgPing{now}}
		b1, _ := enc(s1...)
		b2, _ := enc(s2...)
		b3, _ := enc(s3...)
		b2, b3 = sn(b2), sn(b3)
		c := []any{hello, MsgACK{}, MsgACK{}, MsgPong{PingTimestamp: now}}
		cb, ce := enc(c...)
		seg := func(from int, b []byte, e, by string, m []any) M {
			return M{"offset": from, "end": from + len(b), "encoding": e, "ended_by": by, "decoded": descs(m)}
		}
		write(name, M{"category": "session", "description": "Both directions of a compressed session.", "client_to_server_hex": hex.EncodeToString(cb), "server_to_client_hex": hex.EncodeToString(bytes.Join([][]byte{b1, b2, b3}, nil)),
			"client_to_server": M{"decoded": descs(c), "message_ends": ce, "outcome": "ok"},
			"server_to_client": []any{seg(0, b1, "gob", "MsgDecoderRestart", s1), seg(len(b1), b2, "snappy+gob", "MsgDecoderRestart", s2), seg(len(b1)+len(b2), b3, "snappy+gob", "EOF", s3)},
			// The final values equal the snapshot's, so only the status is new; the deleted key was never sent.
			"client_callbacks": []any{M{"status": 1}, M{"updates": []any{
				M{"key": "/calico/v1/config/LogSeverityScreen", "value": "Info", "revision": "12", "ttl_ns": 0, "update_type": 1},
				M{"key": "/calico/resources/v3/projectcalico.org/profiles/kns.default", "value": `{"kind":"Profile","metadata":{"resourceVersion":"1309"}}`, "revision": "1309", "ttl_ns": 1500000000, "update_type": 1},
			}}, M{"status": 2}}})
	}
	prim := func(name string, f func(v any) M, vs ...any) {
		cs := []any{}
		for _, v := range vs {
			var o bytes.Buffer
			gob.NewEncoder(&o).Encode(v)
			m := f(v)
			m["hex"] = hex.EncodeToString(o.Bytes()[3:]) // length, type id, marker
			cs = append(cs, m)
		}
		write(name, M{"category": "primitive", "description": name, "cases": cs})
	}
	plain := func(v any) M { return M{"value": fmt.Sprint(v)} }
	prim("primitive_uint", plain, uint64(0), uint64(127), uint64(128), uint64(256), uint64(1<<32), uint64(math.MaxUint64))
	prim("primitive_int", plain, 0, 1, -1, 63, 64, -64, -65, math.MaxInt64, math.MinInt64)
	prim("primitive_string", plain, "", "hello", "ключ")
	prim("primitive_float", func(v any) M {
		return M{"value": fmt.Sprint(v), "bits": fmt.Sprintf("%016x", math.Float64bits(v.(float64)))}
	}, 0.0, 1.0, -0.5, 1e100)
	times := []any{}
	for _, t := range []time.Time{now, now.In(time.FixedZone("", 5*3600+1800)), now.In(time.FixedZone("", -17)), time.Unix(0, 0).UTC(), time.Unix(-1, 999999999).UTC(), {}} {
		b, _ := t.GobEncode()
		m := tj(t).(M)
		m["hex"] = hex.EncodeToString(append([]byte{byte(len(b))}, b...))
		times = append(times, m)
	}
	write("primitive_time", M{"category": "primitive", "description": "primitive_time", "cases": times})
}
