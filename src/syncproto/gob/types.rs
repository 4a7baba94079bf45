//! The type definitions that a peer has sent.
//!
//! A definition takes 32 bytes here and each of its fields 8: unknown names are not kept. References between types are
//! resolved when a value needs them, because Go sends outer types first. The definitions of an incomplete message are taken
//! back, so that the message can be read again from its start.

use super::error::Error;
use super::limits::Limits;
use super::reader::Reader;
use super::schema::{Field, Kind, Struct, id};

/// The structure of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Fields `first..first + count` of [`Types::field`].
    Struct { first: u32, count: u32 },
    /// A slice of this type.
    Slice { elem: i32 },
    /// An array of this type and length.
    Array { elem: i32, len: u64 },
    /// A map.
    Map { key: i32, elem: i32 },
    /// Bytes made by a `GobEncode` method.
    GobEncoder,
    /// Bytes made by another marshalling method.
    OtherEncoder,
}

/// A field of a struct definition.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldDef {
    pub(super) field: Field,
    pub(super) type_id: i32,
}

#[derive(Debug)]
struct TypeDef {
    id: i32,
    /// A bit for each [`Struct`] that it was found to fit, counted from the first id.
    fits: u16,
    shape: Shape,
}

/// All definitions of one stream.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// In the order of their ids.
    defs: Vec<TypeDef>,
    fields: Vec<FieldDef>,
    /// Ids defined since the last [`Types::keep`].
    fresh: Vec<i32>,
    /// Length of `fields` at that time.
    kept_fields: usize,
}

impl Types {
    /// The structure of the type with this id.
    pub(super) fn shape(&self, id: i32) -> Option<Shape> {
        self.position(id).ok().map(|position| self.defs[position].shape)
    }

    /// A field of a struct. `first` is from the struct's [`Shape`].
    pub(super) fn field(&self, first: u32, number: usize) -> FieldDef {
        self.fields[first as usize + number]
    }

    /// Keeps all definitions: they belong to complete messages.
    pub(super) fn keep(&mut self) {
        self.fresh = Vec::new();
        self.kept_fields = self.fields.len();
    }

    /// Takes back the definitions since [`Types::keep`].
    pub(super) fn take_back(&mut self) {
        for id in std::mem::take(&mut self.fresh) {
            if let Ok(position) = self.position(id) {
                self.defs.remove(position);
            }
        }
        self.fields.truncate(self.kept_fields);
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.defs.capacity() * size_of::<TypeDef>()
            + self.fields.capacity() * size_of::<FieldDef>()
            + self.fresh.capacity() * size_of::<i32>()
    }

    /// Reads the definition of the type `id`. The id is positive here, and has been read.
    pub(super) fn define(&mut self, id: i64, reader: &mut Reader<'_>, limits: &Limits) -> Result<(), Error> {
        let narrow = i32::try_from(id).ok().filter(|id| *id >= id::FIRST_USER);
        let Some((narrow, position)) = narrow.and_then(|id| self.position(id).err().map(|position| (id, position)))
        else {
            return Err(Error::DuplicateType { id });
        };
        if self.defs.len() >= limits.max_types {
            return Err(Error::Limit {
                what: "the number of type definitions",
                value: self.defs.len() as u64 + 1,
                limit: limits.max_types as u64,
            });
        }
        let shape = self.read_wire_type(narrow, reader, limits)?;
        self.defs.insert(position, TypeDef { id: narrow, fits: 0, shape });
        self.fresh.push(narrow);
        Ok(())
    }

    /// Checks that a value of this type can be read as `wanted`: fields of the same name have the same kind, and all types it
    /// needs are defined. Returns the first of its fields, and their number.
    pub(super) fn check(&mut self, wanted: Struct, type_id: i32) -> Result<(u32, u32), Error> {
        let place = wanted.name();
        let Ok(position) = self.position(type_id) else {
            return Err(if (id::BOOL..=id::INTERFACE).contains(&type_id) {
                Error::TypeMismatch { place: place.to_owned(), wanted: "a struct", id: type_id }
            } else {
                Error::UnknownType { place, id: type_id.into() }
            });
        };
        let Shape::Struct { first, count } = self.defs[position].shape else {
            return Err(Error::TypeMismatch { place: place.to_owned(), wanted: "a struct", id: type_id });
        };
        let bit = 1 << (wanted.id() - id::FIRST_USER);
        if self.defs[position].fits & bit == 0 {
            self.compare(wanted, type_id, first, count)?;
            self.defs[position].fits |= bit;
        }
        Ok((first, count))
    }

    fn compare(&mut self, wanted: Struct, type_id: i32, first: u32, count: u32) -> Result<(), Error> {
        let mut known = 0;
        let mut to_skip = Vec::new();
        for number in 0..count as usize {
            let FieldDef { field, type_id: field_type } = self.field(first, number);
            if field == Field::Nameless {
                return Err(nameless(type_id));
            }
            match wanted.kind_of(field) {
                None => to_skip.push(field_type),
                Some(kind) if self.is_kind(field_type, kind) => {
                    known += 1;
                    if kind == Kind::Updates
                        && let Some(Shape::Slice { elem }) = self.shape(field_type)
                    {
                        self.check(Struct::Update, elem)?;
                    }
                }
                Some(kind) => {
                    return Err(Error::TypeMismatch {
                        place: format!("{}.{}", wanted.name(), field.name()),
                        wanted: kind.words(),
                        id: field_type,
                    });
                }
            }
        }
        self.check_skippable(wanted.name(), to_skip)?;
        // As in Go, only a struct that is a message has to have a field in common with ours.
        let must_match = wanted != Struct::Update && !wanted.fields().is_empty() && count > 0;
        if must_match && known == 0 {
            return Err(Error::NoFieldMatches { place: wanted.name(), id: type_id });
        }
        Ok(())
    }

    /// Whether this type holds values of that kind. [`Types::compare`] checks the elements of updates.
    fn is_kind(&self, type_id: i32, kind: Kind) -> bool {
        match kind {
            Kind::Time => self.shape(type_id) == Some(Shape::GobEncoder),
            Kind::Strings => self.shape(type_id) == Some(Shape::Slice { elem: id::STRING }),
            Kind::Updates => match self.shape(type_id) {
                Some(Shape::Slice { elem }) => {
                    !matches!(self.shape(elem), Some(Shape::GobEncoder | Shape::OtherEncoder))
                }
                _ => false,
            },
            builtin => type_id == builtin.id(),
        }
    }

    /// Checks that all types of skipped values are defined, to any depth.
    fn check_skippable(&self, place: &'static str, mut waiting: Vec<i32>) -> Result<(), Error> {
        let mut seen = vec![false; self.defs.len()];
        while let Some(type_id) = waiting.pop() {
            if (id::BOOL..=id::INTERFACE).contains(&type_id) {
                continue;
            }
            let Ok(position) = self.position(type_id) else {
                return Err(Error::UnknownType { place, id: type_id.into() });
            };
            if std::mem::replace(&mut seen[position], true) {
                continue;
            }
            match self.defs[position].shape {
                Shape::Struct { first, count } => {
                    for number in 0..count as usize {
                        let def = self.field(first, number);
                        if def.field == Field::Nameless {
                            return Err(nameless(type_id));
                        }
                        waiting.push(def.type_id);
                    }
                }
                Shape::Slice { elem } | Shape::Array { elem, .. } => waiting.push(elem),
                Shape::Map { key, elem } => waiting.extend([key, elem]),
                Shape::GobEncoder | Shape::OtherEncoder => {}
            }
        }
        Ok(())
    }

    fn position(&self, id: i32) -> Result<usize, usize> {
        self.defs.binary_search_by_key(&id, |def| def.id)
    }

    /// Reads the struct `wireType`, which has exactly one field set.
    fn read_wire_type(&mut self, id: i32, reader: &mut Reader<'_>, limits: &Limits) -> Result<Shape, Error> {
        let mut shape = None;
        reader.fields("wireType", 7, |reader, number| {
            let read = match number {
                0 => {
                    let [elem, len] = read_numbers(reader, "arrayType")?;
                    let fault = Error::Definition { id: id.into(), fault: "has a negative length" };
                    Shape::Array { elem: to_id(elem)?, len: u64::try_from(len).map_err(|_| fault)? }
                }
                1 => Shape::Slice { elem: to_id(read_numbers::<1>(reader, "sliceType")?[0])? },
                2 => self.read_struct(reader, limits)?,
                3 => {
                    let [key, elem] = read_numbers(reader, "mapType")?;
                    Shape::Map { key: to_id(key)?, elem: to_id(elem)? }
                }
                4 => {
                    read_numbers::<0>(reader, "gobEncoderType")?;
                    Shape::GobEncoder
                }
                _ => {
                    read_numbers::<0>(reader, "gobEncoderType")?;
                    Shape::OtherEncoder
                }
            };
            match shape.replace(read) {
                None => Ok(()),
                Some(_) => Err(Error::Definition { id: id.into(), fault: "says that it is several things at once" }),
            }
        })?;
        shape.ok_or(Error::Definition { id: id.into(), fault: "does not say what it is" })
    }

    fn read_struct(&mut self, reader: &mut Reader<'_>, limits: &Limits) -> Result<Shape, Error> {
        let first = self.fields.len();
        reader.fields("structType", 2, |reader, number| {
            if number == 0 {
                return skip_common(reader);
            }
            let count = reader.count("the list of fields")?;
            if self.fields.len() + count > limits.max_fields {
                return Err(Error::Limit {
                    what: "the number of fields in type definitions",
                    value: (self.fields.len() + count) as u64,
                    limit: limits.max_fields as u64,
                });
            }
            for _ in 0..count {
                let mut def = FieldDef { field: Field::Nameless, type_id: 0 };
                reader.fields("fieldType", 2, |reader, number| {
                    if number == 0 {
                        def.field = Field::from_name(reader.str_bytes("a field name")?);
                    } else {
                        def.type_id = reader.type_id("a field")?;
                    }
                    Ok::<_, Error>(())
                })?;
                self.fields.push(def);
            }
            Ok(())
        })?;
        let narrow = |count: usize| u32::try_from(count).expect("max_fields bounds it");
        Ok(Shape::Struct { first: narrow(first), count: narrow(self.fields.len() - first) })
    }
}

fn nameless(id: i32) -> Error {
    Error::Definition { id: id.into(), fault: "has a field without a name" }
}

fn to_id(number: i64) -> Result<i32, Error> {
    i32::try_from(number).map_err(|_| Error::UnknownType { place: "a definition", id: number })
}

/// Reads a struct of a `CommonType` and N integers.
fn read_numbers<const N: usize>(reader: &mut Reader<'_>, place: &'static str) -> Result<[i64; N], Error> {
    let mut numbers = [0; N];
    reader.fields(place, N + 1, |reader, number| {
        if number == 0 {
            return skip_common(reader);
        }
        numbers[number - 1] = reader.int()?;
        Ok(())
    })?;
    Ok(numbers)
}

/// Skips a `CommonType`: Go ignores its content, and so do we.
fn skip_common(reader: &mut Reader<'_>) -> Result<(), Error> {
    reader.fields("CommonType", 2, |reader, number| {
        if number == 0 { reader.str_bytes("a type name").map(drop) } else { reader.int().map(drop) }
    })
}
