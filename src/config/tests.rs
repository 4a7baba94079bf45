//! The configuration as a whole: sources, precedence, mistakes, generated texts.
