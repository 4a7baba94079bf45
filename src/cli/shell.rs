//! `bulrush completion` and `bulrush man`: made of the commands' own descriptions, so they never differ from them.

use std::io::{self, Write};

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;
use super::exit::ended;

/// The program's name in scripts and pages.
const NAME: &str = "bulrush";

/// Arguments of `bulrush completion`.
#[derive(Args, Clone, Debug)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script that completes commands and options in a shell. Returns the exit status.
///
/// # Errors
/// `out` is broken. A closed one is no error.
pub fn completion(args: &CompletionArgs, out: &mut impl Write) -> io::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    ended(out.write_all(&script).and_then(|()| out.flush()))
}

/// Prints the manual page of all commands, for `man -l -`. Returns the exit status.
///
/// # Errors
/// `out` is broken. A closed one is no error.
pub fn man(out: &mut impl Write) -> io::Result<u8> {
    let mut program = Cli::command();
    program.build();
    let mut page = Vec::new();
    Man::new(program.clone()).render(&mut page)?;
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        section(command, &mut page)?;
    }
    ended(out.write_all(&page).and_then(|()| out.flush()))
}

/// A command as a section of the program's page.
fn section(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    writeln!(page, ".SH \"{} {}\"", NAME.to_uppercase(), command.get_name().to_uppercase())?;
    for line in String::from_utf8_lossy(&text).lines() {
        match line.strip_prefix(".SH ") {
            Some(title) => writeln!(page, ".SS {title}")?,
            None => writeln!(page, "{line}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn bash_reads_its_script_and_all_shells_get_one() {
        for &shell in Shell::value_variants() {
            let mut script = Vec::new();
            assert_eq!(completion(&CompletionArgs { shell }, &mut script).unwrap(), 0);
            assert!(String::from_utf8(script.clone()).unwrap().contains("changes-only"), "{shell}");
            if shell == Shell::Bash {
                let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
                bash.stdin.take().unwrap().write_all(&script).unwrap();
                assert!(bash.wait().unwrap().success());
            }
        }
    }

    #[test]
    fn the_page_has_every_command_with_its_options() {
        let mut page = Vec::new();
        assert_eq!(man(&mut page).unwrap(), 0);
        let page = String::from_utf8(page).unwrap();
        for command in Cli::command().get_subcommands() {
            let title = format!(".SH \"BULRUSH {}\"\n", command.get_name().to_uppercase());
            let (_, section) = page.split_once(&title).unwrap_or_else(|| panic!("no {title}"));
            let section = section.split("\n.SH ").next().unwrap();
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(section.contains(&format!("\\-\\-{}", option.replace('-', "\\-"))), "{title}: {option}");
            }
        }
    }
}
