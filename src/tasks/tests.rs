//! Supervision of tasks: ends, panics, passing tasks.

use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn a_task_that_ends_early_is_a_failure() {
    let tasks = TaskRegistry::new();
    tasks.spawn("lives", std::future::pending::<()>());
    tasks.spawn("short", async {});
    assert_eq!(tasks.failure().await.to_string(), "task short ended before it was told to");
    tasks.spawn("broken", async { Err::<(), _>("no disk") });
    assert_eq!(tasks.failure().await.to_string(), "task broken failed: no disk");
}

#[tokio::test]
async fn a_panic_is_a_failure_even_while_stopping() {
    let tasks = TaskRegistry::new();
    tasks.stopping();
    tasks.spawn("ends", async {});
    tasks.spawn("panics", async {
        assert!(std::hint::black_box(false), "that was wrong");
    });
    tasks.all_ended().await;
    let failure = tasks.failure().await;
    assert_eq!(failure.end, TaskEnd::Panicked("that was wrong".to_owned()));
    let states: Vec<String> = tasks.dump().into_iter().map(|task| task.state).collect();
    assert_eq!(states, ["ended", "panicked: that was wrong"]);
}

#[tokio::test]
async fn a_passing_task_ends_in_peace_and_is_forgotten_but_its_panic_is_a_failure() {
    let (tasks, all) = (TaskRegistry::new(), TaskRegistry::new());
    all.include(&tasks);
    let here = Handle::current();
    for n in 0..100 {
        tasks.spawn_passing(&here, format!("comes and goes {n}"), async {});
    }
    tasks.spawn_passing(&here, "stays", std::future::pending());
    while tasks.dump().len() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(all.dump()[0].name, "stays");
    assert!(tasks.failure().now_or_never().is_none());
    tasks.spawn_passing(&here, "panics", async {
        assert!(std::hint::black_box(false), "that was wrong");
    });
    assert_eq!(tasks.failure().await.to_string(), "task panics panicked: that was wrong");
    assert!(all.failure().now_or_never().is_none(), "each registry has its own failures");
}

#[tokio::test]
async fn tasks_that_share_one_are_supervised_each_by_its_name() {
    let tasks = TaskRegistry::new();
    let panics = async {
        assert!(std::hint::black_box(false), "that was wrong");
    };
    let legs = [("lives", std::future::pending().boxed()), ("panics", panics.boxed()), ("short", async {}.boxed())];
    tasks.spawn_together(legs.map(|(name, leg)| (name.to_owned(), leg)));
    assert_eq!(tasks.failure().await.to_string(), "task panics panicked: that was wrong");
    assert_eq!(tasks.failure().await.to_string(), "task short ended before it was told to");
    let states: Vec<String> = tasks.dump().into_iter().map(|task| task.state).collect();
    assert_eq!(states, ["idle", "panicked: that was wrong", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn tasks_end_in_order_when_told_to() {
    let tasks = TaskRegistry::new();
    let stop = CancellationToken::new();
    let token = stop.clone();
    tasks.spawn_with("follower", |handle| async move {
        handle.doing("following");
        token.cancelled().await;
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let info = tasks.dump().remove(0);
    assert_eq!((info.state.as_str(), info.doing.as_str(), info.runs), ("idle", "following", 1));
    assert!((info.age_secs - 3.0).abs() < 0.1, "{info:?}");
    tasks.stopping();
    stop.cancel();
    tasks.all_ended().await;
    assert!(tasks.failure().now_or_never().is_none());
}
