//! Sessions recorded with Calico's own server and client: our client must report the same events as Calico's.

use serde_json::Value as Json;

use super::*;
use crate::syncproto::messages::Message as GobMessage;
use crate::syncproto::vectors_tests::{text, unhex, vectors};

/// The events of Calico's client, without repetitions of a status, which ours leaves out.
fn expected(session: &Json) -> Vec<Json> {
    let mut expected: Vec<Json> = session["client_callbacks"].as_array().expect("callbacks").clone();
    expected.dedup_by(|next, before| next.get("status").is_some() && next == before);
    for callback in &mut expected {
        for update in callback.get_mut("updates").and_then(Json::as_array_mut).into_iter().flatten() {
            if let Some(object) = update["value"].as_str().and_then(|text| serde_json::from_str::<Json>(text).ok()) {
                update["value"] = object;
            }
        }
    }
    expected
}

/// An event as the vectors write it, and as Calico's client sees it: with the resource version back in the object.
fn callback(event: &SyncEvent) -> Option<Json> {
    match event {
        SyncEvent::Status(status) => Some(serde_json::json!({ "status": *status as u8 })),
        SyncEvent::Updates(updates) => {
            let updates: Vec<Json> = updates
                .iter()
                .map(|update| {
                    let text = update.value.as_ref().map(|value| String::from_utf8(value.bytes.to_vec()).unwrap());
                    let mut value = text.map_or(Json::Null, |text| match serde_json::from_str::<Json>(&text) {
                        Ok(object) => object,
                        Err(_) => Json::from(text),
                    });
                    if !update.v3_resource_version.is_empty() && value.is_object() {
                        value["metadata"]["resourceVersion"] = Json::from(&*update.v3_resource_version);
                    }
                    serde_json::json!({
                        "key": &*update.key,
                        "value": value,
                        "revision": &*update.revision,
                        "ttl_ns": u64::try_from(update.ttl.as_nanos()).unwrap(),
                        "update_type": update.update_type as u8,
                    })
                })
                .collect();
            Some(serde_json::json!({ "updates": updates }))
        }
        _ => None,
    }
}

/// Plays the server's side of a recording; waits for the acknowledgement wherever the server did.
async fn play(session: Json, mut stream: DuplexStream, step: usize) {
    let bytes = unhex(text(&session, "server_to_client_hex"));
    let mut client = gob::Decoder::new(gob::Limits::server());
    let mut buffer = [0; 4096];
    for segment in session["server_to_client"].as_array().expect("segments") {
        let offset = |name: &str| usize::try_from(segment[name].as_u64().expect("an offset")).unwrap();
        for piece in bytes[offset("offset")..offset("end")].chunks(step) {
            stream.write_all(piece).await.unwrap();
        }
        if segment["ended_by"] != "MsgDecoderRestart" {
            continue;
        }
        'waiting: loop {
            while let Some(gob::Envelope(message)) = client.next().expect("the client's stream decodes") {
                if message == Some(GobMessage::Ack) {
                    break 'waiting;
                }
            }
            let count = stream.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0, "the client closed instead of acknowledging");
            client.push(&buffer[..count]);
        }
    }
    stream.shutdown().await.unwrap();
    while stream.read(&mut buffer).await.unwrap_or(0) > 0 {}
}

#[tokio::test(start_paused = true)]
async fn recorded_sessions_are_heard_as_by_calicos_client_vectors() {
    for session in vectors(&["session"]) {
        let name = text(&session, "name");
        // Raw sessions are those of hand-made clients.
        if name.starts_with("session_raw_") {
            continue;
        }
        let hello = &session["client_to_server"]["decoded"][0];
        let syncer = SyncerName::intern(text(hello, "syncer_type"))
            .unwrap_or_else(|_| panic!("{name}: a session of an unknown syncer: {hello}"));
        let expected = expected(&session);
        for step in [3, usize::MAX] {
            let (wires, mut incoming) = wires();
            let compression = session["server_to_client"][0]["ended_by"] == "MsgDecoderRestart";
            let protocol = Protocol::Calico { compression };
            let mut client =
                builder(&["a"]).syncer(syncer).protocol(protocol).max_attempts(1).start_with(wires).unwrap();
            let (_, stream) = incoming.recv().await.unwrap();
            let server = tokio::spawn(play(session.clone(), stream, step));
            let mut heard = Vec::new();
            while let Some(event) = client.next().await {
                if let SyncEvent::Disconnected { reason, .. } = &event {
                    assert_eq!(*reason, Error::Closed { hint: "" }, "{name}");
                }
                heard.extend(callback(&event));
            }
            server.await.unwrap();
            assert_eq!(heard, expected, "{name}");
        }
    }
}
