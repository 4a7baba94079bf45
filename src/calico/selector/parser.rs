//! The grammar: `||` binds weakest, then `&&`, then `!`.

use std::collections::BTreeSet;

use super::Node;
use super::tokens::{ParseError, Token, tokenize};

/// Deepest nesting of parentheses: bounds the stack use by hostile text.
const MAX_DEPTH: usize = 256;

pub(super) fn parse(text: &str) -> Result<Node, ParseError> {
    let tokens = tokenize(text)?;
    if tokens.is_empty() {
        return Ok(Node::All);
    }
    let mut parser = Parser { tokens: &tokens, next: 0, end: text.len(), depth: 0 };
    let node = parser.or()?;
    if parser.next < tokens.len() { Err(parser.expected("&&, || or the end")) } else { Ok(node) }
}

struct Parser<'t, 'a> {
    tokens: &'t [(usize, Token<'a>)],
    next: usize,
    end: usize,
    depth: usize,
}

impl<'a> Parser<'_, 'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).map(|(_, token)| *token)
    }

    fn take(&mut self, wanted: Token<'_>) -> bool {
        let found = self.peek() == Some(wanted);
        self.next += usize::from(found);
        found
    }

    fn expected(&self, expected: &'static str) -> ParseError {
        ParseError { at: self.tokens.get(self.next).map_or(self.end, |(at, _)| *at), expected }
    }

    fn or(&mut self) -> Result<Node, ParseError> {
        let mut operands = vec![self.and()?];
        while self.take(Token::Or) {
            operands.push(self.and()?);
        }
        Ok(single_or(operands, Node::Or))
    }

    fn and(&mut self) -> Result<Node, ParseError> {
        let mut operands = vec![self.operation()?];
        while self.take(Token::And) {
            operands.push(self.operation()?);
        }
        Ok(single_or(operands, Node::And))
    }

    fn operation(&mut self) -> Result<Node, ParseError> {
        let mut negated = false;
        while self.take(Token::Not) {
            negated = !negated;
        }
        let node = self.positive()?;
        Ok(if negated { Node::Not(Box::new(node)) } else { node })
    }

    fn positive(&mut self) -> Result<Node, ParseError> {
        let token = self.peek();
        self.next += usize::from(token.is_some());
        match token {
            Some(Token::Has(label)) => Ok(Node::Has(label.to_owned())),
            Some(Token::All) => Ok(Node::All),
            Some(Token::Global) => Ok(Node::Global),
            Some(Token::Label(label)) => self.comparison(label),
            Some(Token::Open) => {
                if self.depth == MAX_DEPTH {
                    return Err(self.expected("at most 256 nested parentheses"));
                }
                self.depth += 1;
                let node = self.or()?;
                self.depth -= 1;
                if self.take(Token::Close) { Ok(node) } else { Err(self.expected("a closing parenthesis")) }
            }
            _ => {
                self.next -= usize::from(token.is_some());
                Err(self.expected("a label, has(label), all(), global() or a parenthesis"))
            }
        }
    }

    fn comparison(&mut self, label: &str) -> Result<Node, ParseError> {
        if self.take(Token::In) {
            return Ok(Node::In(label.to_owned(), self.set()?));
        }
        if self.take(Token::NotIn) {
            return Ok(Node::NotIn(label.to_owned(), self.set()?));
        }
        let Some(Token::Compare(operator)) = self.peek() else {
            return Err(self.expected("an operator after the label"));
        };
        self.next += 1;
        let Some(Token::Text(value)) = self.peek() else { return Err(self.expected("a text in quotes")) };
        self.next += 1;
        Ok(Node::Compare(label.to_owned(), operator, value.to_owned()))
    }

    fn set(&mut self) -> Result<BTreeSet<String>, ParseError> {
        let mut values = BTreeSet::new();
        if !self.take(Token::OpenSet) {
            return Err(self.expected("a set in braces"));
        }
        while let Some(Token::Text(value)) = self.peek() {
            self.next += 1;
            values.insert(value.to_owned());
            if !self.take(Token::Comma) {
                break;
            }
        }
        if self.take(Token::CloseSet) { Ok(values) } else { Err(self.expected("a closing brace")) }
    }
}

fn single_or(mut operands: Vec<Node>, group: fn(Vec<Node>) -> Node) -> Node {
    match operands.pop() {
        Some(only) if operands.is_empty() => only,
        Some(last) => {
            operands.push(last);
            group(operands)
        }
        None => Node::All,
    }
}
