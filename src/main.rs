//! The `bulrush` binary: allocator, arguments, runtime, exit code.

#![allow(
    clippy::print_stderr,
    reason = "the reason why the program does not start goes to standard error, with or without a log"
)]

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use bulrush::calico::processors::Context;
use bulrush::cli::screen::Screen;
use bulrush::cli::{
    Cli, Command, EXIT_FAILURE, EXIT_USAGE, arguments, config, dump, explain, get, preflight, shell, status, validate,
    watch,
};
use bulrush::config::{Loaded, early_level, load};
use bulrush::daemon::{self, Early};
use bulrush::logging::{FLUSH_TIMEOUT, Logging};
use bulrush::metrics::LogMetrics;
use clap::Parser as _;
use prometheus::Registry;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// Gives memory back to the system, and can profile a running process.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(arguments(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => {
            // Asking for help is no mistake.
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let outcome = match cli.command {
        None => Ok(run_daemon(&cli.config_file)),
        Some(command) => run_command(command),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("bulrush: {error:#}");
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

fn run_command(command: Command) -> anyhow::Result<u8> {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let code = match command {
        Command::Version => {
            write!(out, "{}", daemon::version())?;
            0
        }
        Command::Config(args) => config::run(&args, std::env::vars_os(), &mut out)?,
        Command::Status(mut args) => {
            args.environment = std::env::vars_os().collect();
            client_runtime()?.block_on(status::run(&args, &mut out))?;
            0
        }
        Command::Preflight(mut args) => {
            args.environment = std::env::vars_os().collect();
            client_runtime()?.block_on(preflight::run(&args, &mut out, &mut err))?
        }
        Command::Validate(args) => validate::run(&args, Screen::of_stdout(), &mut io::stdin(), &mut out)?,
        Command::Explain(args) => explain::run(&args, Screen::of_stdout(), &mut out, &mut err)?,
        Command::Dump(mut args) => {
            args.connect.environment = std::env::vars_os().collect();
            client_runtime()?.block_on(dump::run(&args, Screen::of_stdout(), &mut out, &mut err))?
        }
        Command::Watch(mut args) => {
            args.connect.environment = std::env::vars_os().collect();
            let run = until_interrupted(|cancel| watch::run(&args, Screen::of_stdout(), cancel, &mut out, &mut err));
            client_runtime()?.block_on(run)?
        }
        Command::Get(mut args) => {
            args.connect.environment = std::env::vars_os().collect();
            let run = until_interrupted(|cancel| get::run(&args, Screen::of_stdout(), cancel, &mut out, &mut err));
            client_runtime()?.block_on(run)?
        }
        Command::Completion(args) => shell::completion(&args, &mut out)?,
        Command::Man => shell::man(&mut out)?,
    };
    Ok(code)
}

/// Runs a command that follows a server. Ctrl-C sends the server a goodbye before the connection ends.
async fn until_interrupted<F: Future<Output = io::Result<u8>>>(
    command: impl FnOnce(CancellationToken) -> F,
) -> io::Result<u8> {
    let cancel = CancellationToken::new();
    let interrupted = cancel.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.cancel();
        }
    });
    let code = command(cancel).await;
    interrupt.abort();
    code
}

fn client_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn run_daemon(config_file: &Path) -> u8 {
    let registry = Registry::new();
    let early = early_level(std::env::vars_os());
    let logging = match Logging::install(early, LogMetrics::new(&registry)) {
        Ok(logging) => logging,
        Err(error) => {
            eprintln!("bulrush: {error}");
            return EXIT_FAILURE;
        }
    };
    let Loaded { notices, config, .. } = load(config_file, std::env::vars_os());
    let config = match config {
        Ok(config) => config,
        Err(mistakes) => {
            eprintln!("bulrush: {mistakes}");
            return EXIT_USAGE;
        }
    };
    if let Err(error) = logging.configure(&config.logging) {
        eprintln!("bulrush: {error}");
        return EXIT_FAILURE;
    }
    tracing::info!(version = daemon::VERSION, config = %config_file.display(), "bulrush starts");
    for notice in notices {
        if notice.warning { tracing::warn!("{}", notice.text) } else { tracing::info!("{}", notice.text) }
    }
    let runtime = |thread_name: &str| {
        let mut builder = Builder::new_multi_thread();
        builder.enable_all().thread_name(thread_name);
        if let Some(threads) = config.worker_threads {
            builder.worker_threads(threads);
        }
        builder.build()
    };
    let runtimes = runtime("worker").and_then(|main| Ok((main, runtime("agents")?)));
    let outcome = match runtimes {
        Ok((main, agents)) => {
            let early = Early {
                registry,
                log: logging.handle(),
                context: Context::from_environment(std::env::vars_os()),
                agents: agents.handle().clone(),
                own_addresses: daemon::own_addresses(std::env::vars_os()),
            };
            let outcome = main.block_on(daemon::run(config, early));
            // Nothing important is left, so nothing is waited for.
            agents.shutdown_background();
            main.shutdown_background();
            outcome
        }
        Err(error) => Err(anyhow::Error::new(error).context("start the runtimes")),
    };
    let code = match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("bulrush: {error:#}");
            EXIT_FAILURE
        }
    };
    logging.flush(FLUSH_TIMEOUT);
    code
}
