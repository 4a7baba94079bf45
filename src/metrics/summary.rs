//! A summary with quantiles over a moving window, which the `prometheus` crate lacks.
//!
//! Go's client keeps samples. Here observations are counted in buckets whose width grows with the value: an
//! observation is a few relaxed atomic operations, allocates nothing and never waits, and memory is fixed. A quantile is
//! exact in rank and within 1/16 in value; whole numbers below 32 are exact.
//!
//! The window is a ring of slices. The first observation in a slice's time empties the slice. An observer that is slower
//! than a whole turn of the ring may land in a later slice, which hardly changes a quantile.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricFamily, MetricType, Quantile};
use prometheus::{Opts, proto::Metric};
use tokio::time::Instant;

/// The quantiles that Typha exports.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];
/// Buckets for each doubling of the value, as a power of two: 16.
const STEPS_LOG2: u32 = 4;
/// Exponent of the smallest value with a bucket of its own, 2^-20: about a microsecond. Smaller values count as zero.
const LEAST_LOG2: i32 = -20;
/// Exponent of the largest value with a bucket of its own, 2^20: about a million. Larger values share the last bucket.
const MOST_LOG2: i32 = 20;
/// Buckets of a slice: one for zero, one for values that are too large, and the steps between.
const BUCKETS: usize = (((MOST_LOG2 - LEAST_LOG2) as usize) << STEPS_LOG2) + 2;
/// Explicit bits of an f64's mantissa.
const MANTISSA_BITS: u32 = 52;
/// Bias of an f64's exponent.
const EXPONENT_BIAS: i32 = 1023;

/// A Prometheus summary with the quantiles 0.5, 0.9 and 0.99. Clones are the same summary.
#[derive(Clone, Debug)]
pub struct Summary {
    shared: Arc<Observations>,
}

/// The observations of a summary and its clones.
#[derive(Debug)]
struct Observations {
    desc: Desc,
    began: Instant,
    /// Length of a slice in nanoseconds; at least a millisecond.
    slice_nanos: u64,
    slices: Box<[Slice]>,
    /// Held while a slice is emptied.
    turning: Mutex<()>,
    count: AtomicU64,
    /// The bits of an f64.
    sum: AtomicU64,
}

#[derive(Debug)]
struct Slice {
    /// Number of the slice of time that the buckets hold, from 1; 0: none.
    turn: AtomicU64,
    buckets: Box<[AtomicU32]>,
}

impl Summary {
    /// A summary over `window`, which moves in `buckets` steps (at least 1).
    ///
    /// # Errors
    /// When the name or a label is not valid in Prometheus.
    pub fn new(opts: Opts, window: Duration, buckets: usize) -> prometheus::Result<Self> {
        let desc = Desc::new(opts.fq_name(), opts.help, opts.variable_labels, opts.const_labels)?;
        let buckets = buckets.max(1);
        let slice_length = (window / u32::try_from(buckets).unwrap_or(u32::MAX)).max(Duration::from_millis(1));
        let slice = |_| Slice { turn: AtomicU64::new(0), buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect() };
        let shared = Observations {
            desc,
            began: Instant::now(),
            slice_nanos: u64::try_from(slice_length.as_nanos()).unwrap_or(u64::MAX),
            slices: (0..buckets).map(slice).collect(),
            turning: Mutex::new(()),
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0f64.to_bits()),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Counts one observation. NaN is left out; a negative value counts as zero.
    pub fn observe(&self, value: f64) {
        self.observe_at(Instant::now(), value);
    }

    /// Counts one observation at a time that the caller has just read: reading the clock costs more than everything else here.
    pub fn observe_at(&self, now: Instant, value: f64) {
        self.observe_many(now, value, 1);
    }

    /// Counts `count` observations of the same value.
    pub fn observe_many(&self, now: Instant, value: f64, count: u32) {
        if value.is_nan() || count == 0 {
            return;
        }
        let value = value.max(0.0);
        let total = value * f64::from(count);
        let shared = &*self.shared;
        shared.slice_of(now).buckets[bucket_of(value)].fetch_add(count, Relaxed);
        shared.count.fetch_add(u64::from(count), Relaxed);
        let mut sum = shared.sum.load(Relaxed);
        while let Err(newer) =
            shared.sum.compare_exchange_weak(sum, (f64::from_bits(sum) + total).to_bits(), Relaxed, Relaxed)
        {
            sum = newer;
        }
    }

    /// Number of observations since the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.count.load(Relaxed)
    }

    /// The sum of all observations since the start.
    #[must_use]
    pub fn sum(&self) -> f64 {
        f64::from_bits(self.shared.sum.load(Relaxed))
    }

    /// Quantiles of the window. Each one wanted is from 0 to 1; the result is NaN when the window is empty, as in Go.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, wanted: [f64; N]) -> [f64; N] {
        let counts = self.shared.window();
        let total: u64 = counts.iter().sum();
        wanted.map(|quantile| {
            if total == 0 {
                return f64::NAN;
            }
            // Ranks fit a f64 exactly: a window holds far fewer than 2^53 observations.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= rank <= total")]
            let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total);
            let mut seen = 0;
            let at = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            value_of(at.unwrap_or(BUCKETS - 1))
        })
    }
}

impl Observations {
    /// Number of the slice of time that a moment belongs to, from 1.
    fn turn(&self, now: Instant) -> u64 {
        // A u64 holds 584 years of nanoseconds, and dividing it takes a fifth of the time that dividing a u128 takes.
        let elapsed = now.saturating_duration_since(self.began);
        let nanos = elapsed.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(elapsed.subsec_nanos()));
        nanos / self.slice_nanos + 1
    }

    /// The slice for observations of a moment. The first observation in its time empties it.
    fn slice_of(&self, now: Instant) -> &Slice {
        let turn = self.turn(now);
        let slice = &self.slices[self.place(turn)];
        if slice.turn.load(Relaxed) != turn {
            let _turning = self.turning.lock().unwrap_or_else(PoisonError::into_inner);
            if slice.turn.load(Relaxed) < turn {
                for bucket in &slice.buckets {
                    bucket.store(0, Relaxed);
                }
                slice.turn.store(turn, Relaxed);
            }
        }
        slice
    }

    fn place(&self, turn: u64) -> usize {
        usize::try_from(turn % self.slices.len() as u64).expect("a remainder of a usize is a usize")
    }

    /// Sum of the slices in the window that ends now.
    fn window(&self) -> Vec<u64> {
        let newest = self.turn(Instant::now());
        let oldest = newest.saturating_sub(self.slices.len() as u64 - 1).max(1);
        let mut counts = vec![0; BUCKETS];
        for slice in &self.slices {
            if (oldest..=newest).contains(&slice.turn.load(Relaxed)) {
                for (count, bucket) in counts.iter_mut().zip(&slice.buckets) {
                    *count += u64::from(bucket.load(Relaxed));
                }
            }
        }
        counts
    }
}

/// The bucket of a value, which is zero or more and not NaN.
///
/// The bits of a float, read as a whole number, grow with its value. Their upper part is the exponent and the first bits
/// of the mantissa: a logarithmic scale with equal steps inside each doubling.
fn bucket_of(value: f64) -> usize {
    let step = value.to_bits() >> (MANTISSA_BITS - STEPS_LOG2);
    let first = first_step();
    if step < first { 0 } else { usize::try_from(step - first + 1).unwrap_or(BUCKETS).min(BUCKETS - 1) }
}

/// The step at which the buckets begin.
fn first_step() -> u64 {
    u64::from((EXPONENT_BIAS + LEAST_LOG2).unsigned_abs()) << STEPS_LOG2
}

/// The value that a bucket reports: its least whole number if the bucket is at most 1 wide and has one, else its middle.
fn value_of(bucket: usize) -> f64 {
    if bucket == 0 {
        return 0.0;
    }
    let edge = |bucket: usize| f64::from_bits((first_step() + bucket as u64 - 1) << (MANTISSA_BITS - STEPS_LOG2));
    let (low, high) = (edge(bucket), edge(bucket + 1));
    let middle = f64::midpoint(low, high);
    if low >= 1.0 && high - low <= 1.0 && low.ceil() < high { low.ceil() } else { middle }
}

impl Collector for Summary {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.shared.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut summary = proto::Summary::default();
        summary.set_sample_count(self.count());
        summary.set_sample_sum(self.sum());
        let values = QUANTILES.into_iter().zip(self.quantiles(QUANTILES));
        let quantiles = values.map(|(quantile, value)| {
            let mut entry = Quantile::default();
            entry.set_quantile(quantile);
            entry.set_value(value);
            entry
        });
        summary.set_quantile(quantiles.collect());
        let mut metric = Metric::from_label(self.shared.desc.const_label_pairs.clone());
        metric.set_summary(summary);
        let mut family = MetricFamily::default();
        family.set_name(self.shared.desc.fq_name.clone());
        family.set_help(self.shared.desc.help.clone());
        family.set_field_type(MetricType::SUMMARY);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Registry, TextEncoder};
    use proptest::prelude::*;

    use super::*;

    /// Quantiles as text, because these tests compare exact values.
    fn quantiles<const N: usize>(summary: &Summary, wanted: [f64; N]) -> [String; N] {
        summary.quantiles(wanted).map(|value| value.to_string())
    }

    fn summary(window_secs: u64, buckets: usize) -> Summary {
        Summary::new(Opts::new("a_summary", "Help."), Duration::from_secs(window_secs), buckets).unwrap()
    }

    fn exact(sorted: &[f64], quantile: f64) -> f64 {
        let below = |at: usize| (at as f64) < quantile * sorted.len() as f64;
        sorted[(1..sorted.len()).take_while(|at| below(*at)).count()]
    }

    proptest! {
        #[test]
        fn quantiles_agree_with_sorted_data(mut values in prop::collection::vec(1e-6..1e6f64, 1..400)) {
            let summary = summary(600, 5);
            for value in &values {
                summary.observe(*value);
            }
            values.sort_by(f64::total_cmp);
            for (quantile, found) in QUANTILES.into_iter().zip(summary.quantiles(QUANTILES)) {
                let expected = exact(&values, quantile);
                prop_assert!((found - expected).abs() <= expected / 16.0, "{quantile}: {found} for {expected}");
            }
            prop_assert_eq!(summary.count(), values.len() as u64);
            let sum: f64 = values.iter().sum();
            prop_assert!((summary.sum() - sum).abs() <= sum * 1e-9);
        }

        #[test]
        fn small_whole_numbers_are_exact(value in 0..=31u8) {
            let summary = summary(600, 5);
            summary.observe(f64::from(value));
            prop_assert_eq!(quantiles(&summary, [0.5]), [value.to_string()]);
        }

        #[test]
        fn any_float_has_a_bucket(bits: u64) {
            let summary = summary(600, 5);
            let value = f64::from_bits(bits);
            summary.observe(value);
            prop_assert_eq!(summary.count(), u64::from(!value.is_nan()));
        }
    }

    #[test]
    fn edges() {
        let summary = summary(60, 2);
        for odd in [f64::NAN, -1.0, f64::INFINITY, f64::MIN_POSITIVE, -0.0] {
            summary.observe(odd);
        }
        assert_eq!(summary.count(), 4, "NaN is left out");
        assert_eq!(quantiles(&summary, [0.5]), ["0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn old_observations_leave_the_window_in_steps() {
        let summary = summary(60, 2);
        summary.observe(1.0);
        tokio::time::advance(Duration::from_secs(30)).await;
        summary.observe(8.0);
        assert_eq!(quantiles(&summary, [0.1, 0.9]), ["1", "8"]);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(quantiles(&summary, [0.1, 0.9]), ["8", "8"], "the first slice is out");
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(quantiles(&summary, [0.5]), ["NaN"]);
        assert_eq!((summary.count(), summary.sum().to_string().as_str()), (2, "9"), "count and sum never go back");
        summary.observe(2.0);
        assert_eq!(quantiles(&summary, [0.5]), ["2"], "a slice is emptied before it is used again");
    }

    #[test]
    fn many_threads_lose_nothing() {
        let summary = summary(600, 5);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| summary.observe(0.25)));
            }
        });
        assert_eq!((summary.count(), summary.sum().to_string().as_str()), (40_000, "10000"));
    }

    #[test]
    fn exported_as_go_does() {
        let registry = Registry::new();
        let opts = Opts::new("a_summary", "Help.").const_label("syncer", "felix");
        let summary = Summary::new(opts, Duration::from_secs(60), 2).unwrap();
        registry.register(Box::new(summary.clone())).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        insta::assert_snapshot!(text(), @r#"
        # HELP a_summary Help.
        # TYPE a_summary summary
        a_summary{syncer="felix",quantile="0.5"} NaN
        a_summary{syncer="felix",quantile="0.9"} NaN
        a_summary{syncer="felix",quantile="0.99"} NaN
        a_summary_sum{syncer="felix"} 0
        a_summary_count{syncer="felix"} 0
        "#);
        summary.observe(2.0);
        summary.observe(0.5);
        insta::assert_snapshot!(text(), @r#"
        # HELP a_summary Help.
        # TYPE a_summary summary
        a_summary{syncer="felix",quantile="0.5"} 0.515625
        a_summary{syncer="felix",quantile="0.9"} 2
        a_summary{syncer="felix",quantile="0.99"} 2
        a_summary_sum{syncer="felix"} 2.5
        a_summary_count{syncer="felix"} 2
        "#);
    }
}
