// Command agent is a client of Calico's sync protocol that uses only encoding/gob and golang/snappy.
//
// It shows that Go's own decoder understands the daemon, without any code of ours or of Calico's in
// between. It follows one syncer over N connections and, on request, prints the final state of each.
//
//	agent -server HOST:PORT -syncer felix -clients 100 -compress=true -until KEY -timeout 30s
//
// Every connection runs until it has seen the key given by -until (the test's last write), then reports the number of
// keys, a digest of its whole state, the order of statuses, and how many pings it answered. One JSON object a line.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/golang/snappy"
)

// The messages, with the names and fields that Calico's protocol gives them.
type (
	Envelope       struct{ Message any }
	MsgClientHello struct {
		Hostname, Info, Version        string
		SyncerType                     string
		SupportsDecoderRestart         bool
		SupportedCompressionAlgorithms []string
		SupportsModernPolicyKeys       bool
		ClientConnID                   uint64
	}
	MsgServerHello struct {
		Version, SyncerType         string
		SupportsNodeResourceUpdates bool
		ServerConnID                uint64
	}
	MsgDecoderRestart struct{ Message, CompressionAlgorithm string }
	MsgACK            struct{}
	MsgSyncStatus     struct{ SyncStatus uint8 }
	MsgPing           struct{ Timestamp time.Time }
	MsgPong           struct{ PingTimestamp, PongTimestamp time.Time }
	MsgKVs            struct{ KVs []SerializedUpdate }
	SerializedUpdate  struct {
		Key               string
		Value             []byte
		Revision          any
		V3ResourceVersion string
		TTL               time.Duration
		UpdateType        uint8
	}
)

func init() {
	const path = "github.com/projectcalico/typha/pkg/syncproto."
	gob.RegisterName(path+"MsgClientHello", MsgClientHello{})
	gob.RegisterName(path+"MsgServerHello", MsgServerHello{})
	gob.RegisterName(path+"MsgDecoderRestart", MsgDecoderRestart{})
	gob.RegisterName(path+"MsgACK", MsgACK{})
	gob.RegisterName(path+"MsgSyncStatus", MsgSyncStatus{})
	gob.RegisterName(path+"MsgPing", MsgPing{})
	gob.RegisterName(path+"MsgPong", MsgPong{})
	gob.RegisterName(path+"MsgKVs", MsgKVs{})
}

type report struct {
	Client   int               `json:"client"`
	Error    string            `json:"error,omitempty"`
	Keys     int               `json:"keys"`
	Digest   string            `json:"digest"`
	Statuses []int             `json:"statuses"`
	Messages int               `json:"messages"`
	Updates  int               `json:"updates"`
	Deletes  int               `json:"deletes"`
	Pings    int               `json:"pings"`
	Restarts int               `json:"restarts"`
	State    map[string]string `json:"state,omitempty"`
}

type settings struct {
	server, syncer, until string
	compress, print       bool
	timeout               time.Duration
	readDelay             time.Duration
	pings                 int
}

func main() {
	var s settings
	var clients int
	flag.StringVar(&s.server, "server", "localhost:5473", "address of the sync server")
	flag.StringVar(&s.syncer, "syncer", "felix", "syncer to follow")
	flag.StringVar(&s.until, "until", "", "stop once this key has a value and the status is in-sync; empty: stop at in-sync")
	flag.BoolVar(&s.compress, "compress", true, "offer decoder restart and snappy, as Calico's client does")
	flag.BoolVar(&s.print, "print", false, "print the whole state too")
	flag.DurationVar(&s.timeout, "timeout", 30*time.Second, "give up after this time")
	flag.DurationVar(&s.readDelay, "read-delay", 0, "pause after each message: a slow agent")
	flag.IntVar(&s.pings, "pings", 0, "stay connected until this many pings were answered")
	flag.IntVar(&clients, "clients", 1, "number of connections")
	flag.Parse()

	reports := make([]report, clients)
	var wait sync.WaitGroup
	for i := range clients {
		wait.Add(1)
		go func() {
			defer wait.Done()
			r := &reports[i]
			r.Client = i
			if err := follow(s, r); err != nil {
				r.Error = err.Error()
			}
		}()
	}
	wait.Wait()
	failed := false
	out := json.NewEncoder(os.Stdout)
	for i := range reports {
		failed = failed || reports[i].Error != ""
		if err := out.Encode(&reports[i]); err != nil {
			fmt.Fprintln(os.Stderr, "agent: print report:", err)
			os.Exit(1)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// follow runs one connection to its end.
func follow(s settings, r *report) error {
	conn, err := net.DialTimeout("tcp", s.server, 10*time.Second)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.server, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	enc := gob.NewEncoder(conn)
	send := func(message any) error { return enc.Encode(&Envelope{Message: message}) }
	hello := MsgClientHello{
		Hostname: fmt.Sprintf("go-agent-%d", r.Client), Info: "interop test", Version: "test",
		SyncerType: s.syncer, SupportsModernPolicyKeys: true, ClientConnID: uint64(r.Client) + 1<<40,
	}
	if s.compress {
		hello.SupportsDecoderRestart = true
		hello.SupportedCompressionAlgorithms = []string{"snappy"}
	}
	if err := send(hello); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}

	dec := gob.NewDecoder(bufio.NewReader(conn))
	state := map[string]SerializedUpdate{}
	status, greeted := uint8(0), false
	for {
		var envelope Envelope
		if err := dec.Decode(&envelope); err != nil {
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("server closed the connection (status %d, %d keys)", status, len(state))
			}
			return fmt.Errorf("decode after %d messages: %w", r.Messages, err)
		}
		r.Messages++
		switch m := envelope.Message.(type) {
		case MsgServerHello:
			if greeted {
				return errors.New("second server hello")
			}
			greeted = true
			if m.SyncerType != s.syncer || !m.SupportsNodeResourceUpdates {
				return fmt.Errorf("unexpected server hello: %+v", m)
			}
		case MsgDecoderRestart:
			// Like Calico's client: new reader and decoder first, acknowledgement second.
			r.Restarts++
			switch m.CompressionAlgorithm {
			case "snappy":
				dec = gob.NewDecoder(snappy.NewReader(conn))
			case "":
				dec = gob.NewDecoder(bufio.NewReader(conn))
			default:
				return fmt.Errorf("restart with algorithm %q that was not offered", m.CompressionAlgorithm)
			}
			if err := send(MsgACK{}); err != nil {
				return fmt.Errorf("acknowledge restart: %w", err)
			}
		case MsgKVs:
			if !greeted {
				return errors.New("updates before the server hello")
			}
			for _, kv := range m.KVs {
				r.Updates++
				if _, ok := kv.Revision.(string); !ok {
					return fmt.Errorf("revision of %s is a %T, not a string", kv.Key, kv.Revision)
				}
				if len(kv.Value) == 0 {
					r.Deletes++
					delete(state, kv.Key)
				} else {
					state[kv.Key] = kv
				}
			}
		case MsgSyncStatus:
			status = m.SyncStatus
			r.Statuses = append(r.Statuses, int(status))
		case MsgPing:
			r.Pings++
			if m.Timestamp.IsZero() {
				return errors.New("ping without a time")
			}
			if err := send(MsgPong{PingTimestamp: m.Timestamp}); err != nil {
				return fmt.Errorf("send pong: %w", err)
			}
		default:
			return fmt.Errorf("unexpected message %T", envelope.Message)
		}
		time.Sleep(s.readDelay)
		_, seen := state[s.until]
		if status == 2 && (s.until == "" || seen) && r.Pings >= s.pings {
			break
		}
	}
	r.Keys = len(state)
	r.Digest = digest(state)
	if s.print {
		r.State = map[string]string{}
		for key, kv := range state {
			r.State[key] = string(kv.Value)
		}
	}
	return nil
}

// digest hashes keys and values in key order, so that two states can be compared by a line of text.
func digest(state map[string]SerializedUpdate) string {
	keys := make([]string, 0, len(state))
	for key := range state {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	sum := sha256.New()
	for _, key := range keys {
		fmt.Fprintf(sum, "%d:%s=%d:%s\n", len(key), key, len(state[key].Value), state[key].Value)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
