//! From JSON to CEL's values, with the types of the schema.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as CelValue};
use serde_json::Value;

use crate::validate::schema::formats::Format;
use crate::validate::schema::node::{Node, Type};

/// Words of CEL, which a field's name cannot be as it is.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

thread_local! {
    /// CEL's and Kubernetes' functions. A context cannot be shared by threads, and takes long to make.
    static FUNCTIONS: Context<'static> = Context::default().with_all();
    /// The conversions of texts that have a type of their own in CEL.
    static CONVERSIONS: [Option<Program>; 2] = ["timestamp(text)", "duration(text)"].map(|code| Program::compile(code).ok());
    /// An optional without and with a value.
    static OPTIONALS: [Option<Program>; 2] = ["optional.none()", "optional.of(value)"].map(|code| Program::compile(code).ok());
}

/// The name of a field in CEL.
pub(super) fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

/// The value of a place as CEL sees it.
pub(super) fn to_cel(value: &Value, node: Option<&Node>) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(truth) => CelValue::Bool(*truth),
        Value::Number(number) => {
            let number_type = node.is_some_and(|node| node.kind == Some(Type::Number));
            let whole = node.is_some_and(|node| node.kind == Some(Type::Integer));
            match (number.as_i64(), number.as_f64()) {
                (Some(number), _) if !number_type => CelValue::Int(number),
                #[expect(clippy::cast_possible_truncation, reason = "it has no fraction, and saturates")]
                (None, Some(number)) if whole && number.fract() == 0.0 => CelValue::Int(number as i64),
                (_, Some(number)) => CelValue::Float(number),
                _ => CelValue::Null,
            }
        }
        Value::String(text) => text_to_cel(text, node),
        Value::Array(items) => {
            let inner = node.and_then(|node| node.items.as_deref());
            CelValue::List(Arc::new(items.iter().map(|item| to_cel(item, inner)).collect()))
        }
        Value::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (name, value) in fields {
                let declared = node.is_some_and(|node| node.properties.contains_key(name));
                let inner = node.and_then(|node| node.field(name));
                let key = if declared { escaped(name) } else { name.clone() };
                map.insert(Key::String(Arc::new(key)), to_cel(value, inner));
            }
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

fn text_to_cel(text: &str, node: Option<&Node>) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_owned()));
    let format = node.filter(|node| !node.int_or_string).and_then(|node| node.limits.as_ref()?.format);
    let conversion = match format {
        Some(Format::Byte) => {
            return STANDARD.decode(text).map_or_else(|_| plain(), |bytes| CelValue::Bytes(Arc::new(bytes)));
        }
        Some(Format::DateTime | Format::Date) => 0,
        Some(Format::Duration) => 1,
        _ => return plain(),
    };
    let whole = if format == Some(Format::Date) { format!("{text}T00:00:00Z") } else { text.to_owned() };
    CONVERSIONS.with(|programs| {
        let converted = programs[conversion].as_ref().and_then(|program| {
            FUNCTIONS.with(|functions| {
                let mut context = functions.new_inner_scope();
                context.add_variable_from_value("text", CelValue::String(Arc::new(whole)));
                program.execute(&context).ok()
            })
        });
        converted.unwrap_or_else(plain)
    })
}

/// The values that rules of one place can name.
#[derive(Debug)]
pub(in crate::validate::schema) struct Bindings {
    own: CelValue,
    old: Option<CelValue>,
}

impl Bindings {
    /// The value of a place, and the value that it had.
    pub(in crate::validate::schema) fn new(value: &Value, old: Option<&Value>, node: &Node) -> Self {
        Self { own: to_cel(value, Some(node)), old: old.map(|old| to_cel(old, Some(node))) }
    }

    /// Whether the place had a value.
    pub(super) fn has_old(&self) -> bool {
        self.old.is_some()
    }

    /// Runs `work` with the values bound. `optional`: the old value is an optional.
    pub(super) fn bound<T>(&self, optional: bool, work: impl FnOnce(&Context<'_>) -> T) -> T {
        FUNCTIONS.with(|functions| {
            let mut context = functions.new_inner_scope();
            context.add_variable_from_value("self", self.own.clone());
            let old = if optional { Some(as_optional(self.old.as_ref())) } else { self.old.clone() };
            if let Some(old) = old {
                context.add_variable_from_value("oldSelf", old);
            }
            work(&context)
        })
    }
}

fn as_optional(value: Option<&CelValue>) -> CelValue {
    OPTIONALS.with(|programs| {
        let program = programs[usize::from(value.is_some())].as_ref();
        let made = program.and_then(|program| {
            FUNCTIONS.with(|functions| {
                let mut context = functions.new_inner_scope();
                context.add_variable_from_value("value", value.cloned().unwrap_or(CelValue::Null));
                program.execute(&context).ok()
            })
        });
        made.unwrap_or(CelValue::Null)
    })
}

/// The sizes that decide what rules cost on a value.
#[derive(Debug, Default)]
pub(in crate::validate::schema) struct Sizes {
    /// Longest text, in bytes.
    pub(super) text: u64,
    /// Most items of any list or mapping.
    pub(super) items: u64,
    /// Most items of a list or mapping in a field of this name.
    pub(super) fields: BTreeMap<String, u64>,
}

impl Sizes {
    /// The sizes of a value, without those of fields.
    pub(in crate::validate::schema) fn of(value: &Value) -> Self {
        let mut sizes = Self::default();
        sizes.see(value, None, false);
        sizes
    }

    /// The sizes of a value, by fields as well.
    pub(super) fn by_field(value: &Value) -> Self {
        let mut sizes = Self::default();
        sizes.see(value, None, true);
        sizes
    }

    fn see(&mut self, value: &Value, field: Option<&str>, by_field: bool) {
        let items = match value {
            Value::String(text) => return self.text = self.text.max(text.len() as u64),
            Value::Array(items) => {
                items.iter().for_each(|item| self.see(item, None, by_field));
                items.len()
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.text = self.text.max(name.len() as u64);
                    self.see(value, Some(name), by_field);
                }
                fields.len()
            }
            _ => return,
        } as u64;
        self.items = self.items.max(items);
        if let Some(field) = field.filter(|_| by_field) {
            let most = self.fields.entry(escaped(field)).or_default();
            *most = items.max(*most);
        }
    }
}
