//! Bytes that Go produces for the same ids.

use bytes::{Bytes, BytesMut};

use super::super::{client_prefix, encode, encode_updates, server_prefix};
use super::{hex, unhex};
use crate::model::{Update, UpdateType, Value};
use crate::syncproto::messages::{ClientHello, GoRevision, Message, SerializedUpdate};
use crate::syncproto::snappy;

const PREFIX: &str = "
217f03010108456e76656c6f706501ff8000010101074d6573736167650110000000
68ff810301010e4d736753657276657248656c6c6f01ff82000104010756657273696f6e010c00010a53796e63657254797065010c00011b537570706f7274734e6f64655265736f7572636555706461746573010200010c536572766572436f6e6e49440106000000
44ff83030101114d73674465636f6465725265737461727401ff8400010201074d657373616765010c000114436f6d7072657373696f6e416c676f726974686d010c000000
2aff850301010d4d736753796e6353746174757301ff86000101010a53796e635374617475730106000000
24ff87030101074d736750696e6701ff88000101010954696d657374616d7001ff8a000000
10ff890501010454696d6501ff8a000000
1dff8b030101064d73674b567301ff8c00010101034b567301ff8e000000
2bff8d0201011c5b5d73796e6370726f746f2e53657269616c697a656455706461746501ff8e0001ff900000
6aff8f0301011053657269616c697a656455706461746501ff9000010601034b6579010c00010556616c7565010a0001085265766973696f6e011000011156335265736f7572636556657273696f6e010c00010354544c010400010a557064617465547970650106000000";
const IN_SYNC: &str = "45ff80013a6769746875622e636f6d2f70726f6a65637463616c69636f2f74797068612f706b672f73796e6370726f746f2e4d736753796e63537461747573ff860301020000";
const TWO_UPDATES: &str = "6eff8001336769746875622e636f6d2f70726f6a65637463616c69636f2f74797068612f706b672f73796e6370726f746f2e4d73674b5673ff8c33010201022f6b0101760106737472696e670c0400023132010133011801010001022f7a0206737472696e670c0200000303000000";
const IN_SYNC_SNAPPY: &str = "ff060000734e61507059014a0000cc2161a245ff80013a6769746875622e636f6d2f70726f6a65637463616c69636f2f74797068612f706b672f73796e6370726f746f2e4d736753796e63537461747573ff860301020000";

fn encoded(message: &Message) -> BytesMut {
    let mut out = BytesMut::new();
    encode(message, &mut out);
    out
}

#[test]
fn the_prefix_is_go_s() {
    assert_eq!(hex(&server_prefix()), PREFIX.replace('\n', ""));
    assert_eq!(server_prefix().len(), 486);
}

#[test]
fn a_status_is_go_s() {
    assert_eq!(hex(&encoded(&Message::SyncStatus(2))), IN_SYNC);
}

#[test]
fn updates_are_go_s() {
    let string = |text: &str| Some(GoRevision { go_type: "string".to_owned(), text: text.to_owned() });
    let message = Message::Kvs(vec![
        SerializedUpdate {
            key: Bytes::from("/k"),
            value: Bytes::from("v"),
            revision: string("12"),
            v3_resource_version: "3".to_owned(),
            ttl_ns: 12,
            update_type: 1,
        },
        SerializedUpdate { key: Bytes::from("/z"), revision: string(""), update_type: 3, ..Default::default() },
    ]);
    assert_eq!(hex(&encoded(&message)), TWO_UPDATES);
}

#[test]
fn the_model_s_updates_are_the_same_bytes() {
    let updates = [
        Update {
            key: "/k".into(),
            value: Some(Value::raw("v")),
            revision: "12".into(),
            v3_resource_version: "3".into(),
            ttl: std::time::Duration::from_nanos(12),
            update_type: UpdateType::New,
            origin: None,
        },
        Update {
            key: "/z".into(),
            value: None,
            revision: "".into(),
            v3_resource_version: "".into(),
            ttl: std::time::Duration::ZERO,
            update_type: UpdateType::Deleted,
            origin: None,
        },
    ];
    let mut out = BytesMut::new();
    encode_updates(updates.iter(), false, &mut out);
    assert_eq!(hex(&out), TWO_UPDATES);

    out.clear();
    encode_updates(updates.iter(), true, &mut out);
    assert_eq!(hex(&out), TWO_UPDATES.replace("0303000000", "0301000000"), "in a snapshot everything is new");
}

#[test]
fn a_message_takes_exactly_the_memory_it_needs() {
    let mut out = BytesMut::new();
    let updates = vec![SerializedUpdate { key: Bytes::from(vec![b'k'; 3000]), ..Default::default() }; 200];
    encode(&Message::Kvs(updates), &mut out);
    assert_eq!(out.capacity(), out.len(), "one reservation of the right size");
}

#[test]
fn a_compressed_status_is_go_s() {
    let mut out = BytesMut::new();
    snappy::frame(&unhex(IN_SYNC), &mut out, true);
    assert_eq!(hex(&out), IN_SYNC_SNAPPY);
}

#[test]
fn a_client_s_messages_are_go_s_in_everything_but_ids() {
    // Recorded: a hello behind its definitions, and a second acknowledgement.
    let hello = "430109746573742d686f73740109746573742d696e666f010c746573742d76657273696f6e010566656c69780101010106736e61707079010101f85a5a637d000000030000";
    let ack = "3cff8001336769746875622e636f6d2f70726f6a65637463616c69636f2f74797068612f706b672f73796e6370726f746f2e4d736741434bff8a010000";
    let message = Message::ClientHello(ClientHello {
        hostname: "test-host".to_owned(),
        info: "test-info".to_owned(),
        version: "test-version".to_owned(),
        syncer_type: "felix".to_owned(),
        supports_decoder_restart: true,
        supported_compression_algorithms: vec!["snappy".to_owned()],
        supports_modern_policy_keys: true,
        client_conn_id: 6_510_625_599_839_535_107,
    });
    assert!(hex(&encoded(&message)).ends_with(&format!("ff92{hello}")));
    assert_eq!(hex(&encoded(&Message::Ack)), ack.replace("ff8a", "ff96"));
    // The definition of an empty struct has no list of fields, and slices have Go's name.
    let prefix = hex(&client_prefix());
    assert!(prefix.contains("12ff95030101064d736741434b01ff96000000"), "{prefix}");
    assert!(
        prefix
            .contains("2eff93020101205b5d73796e6370726f746f2e436f6d7072657373696f6e416c676f726974686d01ff9400010c0000"),
        "{prefix}"
    );
}
