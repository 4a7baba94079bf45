//! The `tracing` layer that hands lines to the destinations.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::format::{self, FieldValue, Fields};
use super::{FATAL_TARGET, Outputs};
use crate::config::Severity;

/// Turns events into lines.
#[derive(Clone, Debug)]
pub(super) struct LogLayer(pub(super) Arc<Outputs>);

/// The severity of an event.
fn severity_of(metadata: &Metadata<'_>) -> Severity {
    match *metadata.level() {
        Level::ERROR if metadata.target() == FATAL_TARGET => Severity::Critical,
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        Level::INFO => Severity::Info,
        Level::DEBUG => Severity::Debug,
        Level::TRACE => Severity::Trace,
    }
}

/// Whether a destination of severity `taken` gets an event. Libraries' details are left out except at TRACE: HTTP/2 alone logs
/// more at DEBUG than we do.
fn wanted(metadata: &Metadata<'_>, taken: Severity) -> bool {
    let severity = severity_of(metadata);
    let own = metadata.target().starts_with("bulrush");
    // Failures of these libraries are logged by us, with the attempt and advice.
    let told_by_us = ["kube", "rustls_platform_verifier"].iter().any(|library| metadata.target().starts_with(library));
    severity <= taken && (own || !told_by_us && severity <= Severity::Info || taken == Severity::Trace)
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        // Spans of any level hold fields for the events inside them.
        let most = self.0.most();
        most.is_some_and(|taken| metadata.is_span() || wanted(metadata, taken))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.0.most() {
            None => LevelFilter::OFF,
            Some(Severity::Critical | Severity::Error) => LevelFilter::ERROR,
            Some(Severity::Warning) => LevelFilter::WARN,
            Some(Severity::Info) => LevelFilter::INFO,
            Some(Severity::Debug) => LevelFilter::DEBUG,
            Some(Severity::Trace) => LevelFilter::TRACE,
        })
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let destinations = self.0.destinations.load();
        let metadata = event.metadata();
        let takers = destinations.iter().filter(|one| one.severity().is_some_and(|taken| wanted(metadata, taken)));
        let mut takers = takers.peekable();
        if takers.peek().is_none() {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut spans: Vec<(&'static str, FieldValue)> = Vec::new();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                for (name, value) in &fields.others {
                    if spans.iter().all(|(other, _)| other != name) {
                        spans.push((name, value.clone()));
                    }
                }
            }
        }
        let event = format::Event {
            at: SystemTime::now(),
            severity: severity_of(metadata),
            target: fields.target.as_deref().unwrap_or(metadata.target()),
            line: metadata.line(),
            fields: &fields,
            spans: &spans,
        };
        let line = if self.0.json.load(Relaxed) { event.json() } else { event.text() };
        for destination in takers {
            destination.queue.push(line.clone());
        }
    }
}
