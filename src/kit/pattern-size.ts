const anyNumber = /^\{(\d+)(,(\d*))?\}/;

/**
 * How many instructions a regular expression takes, at most and roughly: its letters and sets, those under
 * `{2,5}` as often as they may come. What cannot be read is counted as it stands; whoever compiles it will
 * say so.
 */
export function patternSize(pattern: string): number {
  let at = 0;

  const setEnd = (): void => {
    at++;
    if (pattern[at] === "^") at++;
    // A bracket that comes first is a letter.
    if (pattern[at] === "]") at++;
    while (at < pattern.length && pattern[at] !== "]") {
      if (pattern[at] === "\\") at++;
      else if (pattern.startsWith("[:", at)) {
        const end = pattern.indexOf(":]", at);
        if (end > 0) at = end + 1;
      }
      at++;
    }
    at++;
  };

  const times = (size: number): number => {
    for (let total = size; ; ) {
      const repeat = anyNumber.exec(pattern.slice(at, at + 24));
      if (repeat) {
        const [whole, least, range, most] = repeat;
        at += whole.length;
        const isOpen = range !== undefined && !most;
        total *= Math.max(1, Number(isOpen || !most ? least : most) + (isOpen ? 1 : 0));
      } else if (at < pattern.length && "*+?".includes(pattern[at]!)) {
        at++;
        total += 1;
      } else return total;
    }
  };

  const group = (depth: number): number => {
    let size = 2;
    while (at < pattern.length) {
      const letter = pattern[at]!;
      if (letter === ")") {
        if (depth > 0) return size;
        at++;
        continue;
      }
      let own = 1;
      if (letter === "(") {
        at++;
        own = group(depth + 1) + 2;
        at++;
      } else if (letter === "[") setEnd();
      else if (letter === "\\") at += 2;
      else at++;
      size += times(own);
    }
    return size;
  };

  return group(0);
}
