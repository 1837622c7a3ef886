//! The Python text of a traced graph: statements, assignments, arguments. What they mean is not known here.

/// The statements of a text with the lines where they begin: no comments, brackets closed, split at `;`.
pub(super) fn statements(text: &str) -> Vec<(usize, String)> {
    let mut statements = Vec::new();
    let (mut open, mut depth, mut from) = (String::new(), 0, 0);
    for (line, content) in (1..).zip(text.lines()) {
        let content = plain(content);
        let content = without_comment(&content).trim();
        if open.is_empty() {
            from = line;
        }
        open.push_str(content);
        open.push(' ');
        depth += opened(content);
        if depth > 0 {
            continue;
        }
        depth = 0;
        let whole = std::mem::take(&mut open);
        let parts = split(&whole, ';').into_iter().map(str::trim).filter(|part| !part.is_empty());
        statements.extend(parts.map(|part| (from, part.to_string())));
    }
    statements
}

/// A line without the colours and the prefix of PyTorch's logs:
/// `V0611 12:00:00.000000 1 torch/…/x.py:205] [0/0] [__aot_graphs] `.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, colour)) = rest.split_once("\u{1b}[") {
        text.push_str(before);
        rest = colour.split_once('m').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    match text.split_once(" [__").and_then(|(_, after)| after.split_once("] ")) {
        Some((_, message)) => message.to_string(),
        None => text,
    }
}

fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let at = line.char_indices().find(|(_, c)| {
        quote = within(quote, *c);
        *c == '#' && quote.is_none()
    });
    at.map_or(line, |(at, _)| &line[..at])
}

/// The quotation mark that is open after a character.
fn within(quote: Option<char>, c: char) -> Option<char> {
    match (quote, c) {
        (None, '"' | '\'') => Some(c),
        (Some(open), _) if open == c => None,
        _ => quote,
    }
}

/// How many more brackets a line opens than it closes.
fn opened(line: &str) -> i32 {
    let mut quote = None;
    line.chars().fold(0, |depth, c| {
        quote = within(quote, c);
        match c {
            '(' | '[' | '{' if quote.is_none() => depth + 1,
            ')' | ']' | '}' if quote.is_none() => depth - 1,
            _ => depth,
        }
    })
}

/// Splits at a separator that stands in no bracket and no quotation.
pub(super) fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut quote, mut from, mut parts) = (0, None, 0, Vec::new());
    for (at, c) in text.char_indices() {
        quote = within(quote, c);
        match c {
            _ if quote.is_some() => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ if c == separator && depth == 0 => {
                parts.push(&text[from..at]);
                from = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// The non-empty parts between commas.
pub(super) fn list(text: &str) -> Vec<&str> {
    split(text, ',').into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// `target = value`, the `=` standing in no bracket.
pub(super) fn assignment(text: &str) -> Option<(&str, &str)> {
    let target = split(text, '=').first().copied()?;
    let value = text[target.len()..].strip_prefix('=')?;
    Some((target.trim(), value.trim()))
}

/// `name: "type"`; the type without quotation marks.
pub(super) fn annotated(target: &str) -> (&str, Option<&str>) {
    match target.split_once(':') {
        Some((name, ty)) => (name.trim(), Some(ty.trim().trim_matches('"'))),
        None => (target.trim(), None),
    }
}

/// `callee(arguments)`.
pub(super) fn call(value: &str) -> Option<(&str, &str)> {
    let (callee, rest) = value.split_once('(')?;
    Some((callee.trim(), rest.trim_end().strip_suffix(')')?))
}

/// What an argument may name: itself, the value behind its keyword, or every element of a list.
pub(super) fn names(argument: &str) -> Vec<&str> {
    let value = assignment(argument).map_or(argument, |(_, value)| value);
    // Brackets that are open within a call, whose arguments are no operands.
    let (mut from, mut within_call, mut names) = (0, 0, Vec::new());
    for (at, c) in value.char_indices() {
        let begins = value[from..at].trim().is_empty();
        match c {
            '(' | '[' if within_call > 0 || !begins => within_call += 1,
            ')' | ']' if within_call > 0 => within_call -= 1,
            '(' | '[' => from = at + 1,
            ',' | ')' | ']' if within_call == 0 => {
                names.push(value[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    names.push(value[from..].trim());
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_span_lines_and_have_no_comments() {
        let text = "class G(torch.nn.Module):  # it's a\n  f(\n    x,  # [\n    y\n  ); x = None\n";
        let found = statements(text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], (2, "f( x, y )".to_string()));
        assert_eq!(found[2], (2, "x = None".to_string()));
    }

    #[test]
    fn logs_have_a_prefix_and_colours() {
        let text =
            "V0611 12:00:00.1 7 torch/a.py:205] [0/0] [__aot_graphs]     a: \"\u{1b}[31mf32\u{1b}[0m[2]\" = f(b)\n";
        assert_eq!(statements(text), [(1, "a: \"f32[2]\" = f(b)".to_string())]);
    }

    #[test]
    fn arguments_name_whole_words_only() {
        assert_eq!(names("[None, a]"), ["None", "a"]);
        assert_eq!(names("mask = a"), ["a"]);
        assert_eq!(names("device = device(type='cuda', index=0)"), ["device(type='cuda', index=0)"]);
        assert_eq!(names("[(a, b), [c]]"), ["a", "b", "c"]);
    }
}
