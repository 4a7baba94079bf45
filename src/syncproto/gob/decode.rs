//! Reads the value of one message: an envelope and its content.
//!
//! Reads the complete frames that have come. When the message goes on in a frame that has not come, it stops with
//! [`Halt::NextFrame`] and is called again from the start. The decoder limits how often.

use super::super::messages::{ClientHello, DecoderRestart, Message, Ping, Pong, SerializedUpdate, ServerHello};
use super::error::{Error, Halt};
use super::limits::Limits;
use super::reader::Reader;
use super::schema::{Field, Struct};
use super::types::{FieldDef, Shape, Types};
use crate::syncproto::messages::GobTime;

/// Fewest bytes of a real update. Smaller updates are legal; for them the list grows while it is read. So a count
/// alone cannot allocate much more memory than the message has.
const USUAL_UPDATE: usize = 32;

/// Reads the values of one message. Adds definitions inside it to `types`.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) types: &'a mut Types,
    pub(super) limits: &'a Limits,
}

impl Walk<'_> {
    /// Reads an envelope of this type.
    pub(super) fn envelope(&mut self, type_id: i32) -> Result<Option<Message>, Halt> {
        let mut message = None;
        self.each_field(Struct::Envelope, type_id, |walk, _, _| {
            message = walk.message()?;
            Ok(())
        })?;
        Ok(message)
    }

    /// The name of an interface value's type; empty means nil.
    pub(super) fn interface_name(&mut self) -> Result<&[u8], Error> {
        let name = self.reader.str_bytes("the name of a type")?;
        if name.len() > self.limits.max_name {
            return Err(Error::NameTooLong { length: name.len() as u64, limit: self.limits.max_name });
        }
        Ok(name)
    }

    /// The type id of an interface value. Reads the definitions that may stand before it.
    ///
    /// After a definition, the same frame may go on: then a byte count follows, which is skipped. Else the next frame goes on.
    pub(super) fn interface_type(&mut self) -> Result<i32, Halt> {
        let mut defined = false;
        loop {
            if self.reader.frame_is_done() {
                self.reader.next_frame(defined)?;
            }
            let type_id = self.reader.int()?;
            if type_id >= 0 {
                let place = "an interface value";
                return i32::try_from(type_id).map_err(|_| Error::UnknownType { place, id: type_id }.into());
            }
            self.types.define(type_id.saturating_neg(), &mut self.reader, self.limits)?;
            defined = true;
            if !self.reader.frame_is_done() {
                self.reader.uint()?;
            }
        }
    }

    /// The number of elements of a slice that will be kept.
    pub(super) fn kept_count(&mut self, what: &'static str) -> Result<usize, Error> {
        let count = self.reader.count(what)?;
        if count > self.limits.max_elements {
            return Err(Error::Limit { what, value: count as u64, limit: self.limits.max_elements as u64 });
        }
        Ok(count)
    }

    fn message(&mut self) -> Result<Option<Message>, Halt> {
        const PLACE: &str = "Envelope.Message";
        let name = self.interface_name()?;
        if name.is_empty() {
            return Ok(None);
        }
        let Some(kind) = Struct::from_registered_name(name) else {
            return Err(Error::UnregisteredName { place: PLACE, name: Error::readable(name) }.into());
        };
        let type_id = self.interface_type()?;
        // The value's size. It may be wrong: Go ignores it, and so do we.
        self.reader.uint()?;
        Ok(Some(match kind {
            Struct::ClientHello => Message::ClientHello(self.client_hello(type_id)?),
            Struct::ServerHello => Message::ServerHello(self.server_hello(type_id)?),
            Struct::DecoderRestart => Message::DecoderRestart(self.decoder_restart(type_id)?),
            Struct::Ack => {
                self.each_field(Struct::Ack, type_id, |_, _, _| Ok(()))?;
                Message::Ack
            }
            Struct::SyncStatus => {
                let mut status = 0;
                self.each_field(Struct::SyncStatus, type_id, |walk, _, _| {
                    status = walk.small_number("MsgSyncStatus.SyncStatus")?;
                    Ok(())
                })?;
                Message::SyncStatus(status)
            }
            Struct::Ping => {
                let mut ping = Ping::default();
                self.each_field(Struct::Ping, type_id, |walk, _, _| {
                    ping.timestamp = walk.time()?;
                    Ok(())
                })?;
                Message::Ping(ping)
            }
            Struct::Pong => {
                let mut pong = Pong::default();
                self.each_field(Struct::Pong, type_id, |walk, field, _| {
                    match field {
                        Field::PingTimestamp => pong.ping_timestamp = walk.time()?,
                        _ => pong.pong_timestamp = walk.time()?,
                    }
                    Ok(())
                })?;
                Message::Pong(pong)
            }
            Struct::Kvs => {
                let mut kvs = Vec::new();
                self.each_field(Struct::Kvs, type_id, |walk, _, slice| {
                    kvs = walk.updates(slice)?;
                    Ok(())
                })?;
                Message::Kvs(kvs)
            }
            Struct::Envelope | Struct::Update => unreachable!("they have no registered name"),
        }))
    }

    fn client_hello(&mut self, type_id: i32) -> Result<ClientHello, Halt> {
        let mut hello = ClientHello::default();
        self.each_field(Struct::ClientHello, type_id, |walk, field, _| {
            let reader = &mut walk.reader;
            match field {
                Field::Hostname => hello.hostname = reader.text(field.name())?,
                Field::Info => hello.info = reader.text(field.name())?,
                Field::Version => hello.version = reader.text(field.name())?,
                Field::SyncerType => hello.syncer_type = reader.text(field.name())?,
                Field::SupportsDecoderRestart => hello.supports_decoder_restart = reader.uint()? != 0,
                Field::SupportsModernPolicyKeys => hello.supports_modern_policy_keys = reader.uint()? != 0,
                Field::ClientConnId => hello.client_conn_id = reader.uint()?,
                _ => {
                    let count = walk.kept_count("the list of compression algorithms")?;
                    hello.supported_compression_algorithms =
                        (0..count).map(|_| walk.reader.text("an algorithm")).collect::<Result<_, _>>()?;
                }
            }
            Ok(())
        })?;
        Ok(hello)
    }

    fn server_hello(&mut self, type_id: i32) -> Result<ServerHello, Halt> {
        let mut hello = ServerHello::default();
        self.each_field(Struct::ServerHello, type_id, |walk, field, _| {
            let reader = &mut walk.reader;
            match field {
                Field::Version => hello.version = reader.text(field.name())?,
                Field::SyncerType => hello.syncer_type = reader.text(field.name())?,
                Field::SupportsNodeResourceUpdates => hello.supports_node_resource_updates = reader.uint()? != 0,
                _ => hello.server_conn_id = reader.uint()?,
            }
            Ok(())
        })?;
        Ok(hello)
    }

    fn decoder_restart(&mut self, type_id: i32) -> Result<DecoderRestart, Halt> {
        let mut restart = DecoderRestart::default();
        self.each_field(Struct::DecoderRestart, type_id, |walk, field, _| {
            let text = walk.reader.text(field.name())?;
            match field {
                Field::Message => restart.message = text,
                _ => restart.compression_algorithm = text,
            }
            Ok(())
        })?;
        Ok(restart)
    }

    fn updates(&mut self, slice: i32) -> Result<Vec<SerializedUpdate>, Halt> {
        let Some(Shape::Slice { elem }) = self.types.shape(slice) else {
            unreachable!("the type of MsgKVs.KVs has been checked");
        };
        let count = self.kept_count("the list of updates")?;
        let mut updates = Vec::with_capacity(count.min(self.reader.left() / USUAL_UPDATE));
        for done in 0..count {
            if self.reader.frame_is_done() {
                let length = (count - done) as u64;
                return Err(Error::InnerLength { what: "the list of updates", length, left: 0 }.into());
            }
            updates.push(self.update(elem)?);
        }
        Ok(updates)
    }

    fn update(&mut self, type_id: i32) -> Result<SerializedUpdate, Halt> {
        let mut update = SerializedUpdate::default();
        self.each_field(Struct::Update, type_id, |walk, field, _| {
            match field {
                Field::Key => update.key = walk.reader.bytes(field.name())?,
                Field::Value => update.value = walk.reader.bytes(field.name())?,
                Field::Revision => update.revision = walk.revision()?,
                Field::V3ResourceVersion => update.v3_resource_version = walk.reader.text(field.name())?,
                Field::Ttl => update.ttl_ns = walk.reader.int()?,
                _ => update.update_type = walk.small_number("SerializedUpdate.UpdateType")?,
            }
            Ok(())
        })?;
        Ok(update)
    }

    fn time(&mut self) -> Result<GobTime, Error> {
        GobTime::from_wire(self.reader.bytes("a time")?)
    }

    fn small_number(&mut self, place: &'static str) -> Result<u8, Error> {
        let value = self.reader.uint()?;
        u8::try_from(value).map_err(|_| Error::Overflow { place, value: value.to_string() })
    }

    /// Reads a struct of the peer's type `type_id` as our struct `wanted`. Calls `known` for each field that ours has, with the
    /// field's type, to read its value. Skips other fields.
    fn each_field(
        &mut self,
        wanted: Struct,
        type_id: i32,
        mut known: impl FnMut(&mut Self, Field, i32) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        let (first, count) = self.types.check(wanted, type_id)?;
        let mut next = 0;
        while let Some(number) = self.reader.field_number(wanted.name(), count as usize, next)? {
            let FieldDef { field, type_id } = self.types.field(first, number);
            if wanted.kind_of(field).is_some() {
                known(self, field, type_id)?;
            } else {
                self.skip(type_id, 0)?;
            }
            next = number + 1;
        }
        Ok(())
    }
}
