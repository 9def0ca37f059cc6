interface TrieNode<Value> {
  next: Map<string, TrieNode<Value>>;
  /** Patterns that end here. */
  values: Set<Value>;
  /** Patterns that end with `>` here. */
  rest: Set<Value>;
}

const newNode = <Value>(): TrieNode<Value> => ({ next: new Map(), values: new Set(), rest: new Set() });

const isEmpty = <Value>({ next, values, rest }: TrieNode<Value>): boolean =>
  next.size === 0 && values.size === 0 && rest.size === 0;

/** Values by pattern: a topic finds its own without looking at the others. */
export function openTrie<Value>() {
  const root = newNode<Value>();

  function collect(place: TrieNode<Value>, tokens: readonly string[], at: number, found: Value[]): void {
    if (at === tokens.length) {
      for (const value of place.values) found.push(value);
      return;
    }
    for (const value of place.rest) found.push(value);
    const named = place.next.get(tokens[at]!);
    if (named) collect(named, tokens, at + 1, found);
    const any = place.next.get("*");
    if (any) collect(any, tokens, at + 1, found);
  }

  function prune(place: TrieNode<Value>, pattern: readonly string[], at: number, value: Value): void {
    const token = pattern[at];
    if (token === undefined) place.values.delete(value);
    else if (token === ">" && at === pattern.length - 1) place.rest.delete(value);
    else {
      const next = place.next.get(token);
      if (!next) return;
      prune(next, pattern, at + 1, value);
      if (isEmpty(next)) place.next.delete(token);
    }
  }

  return {
    /** `*` matches one token, a last `>` one or more. */
    add(pattern: readonly string[], value: Value) {
      let place = root;
      for (const [at, token] of pattern.entries()) {
        if (token === ">" && at === pattern.length - 1) {
          place.rest.add(value);
          return;
        }
        let next = place.next.get(token);
        if (!next) {
          next = newNode();
          place.next.set(token, next);
        }
        place = next;
      }
      place.values.add(value);
    },
    remove: (pattern: readonly string[], value: Value) => prune(root, pattern, 0, value),
    /** In no promised order; a value that was added under several patterns comes once for each. */
    match(tokens: readonly string[]): Value[] {
      const found: Value[] = [];
      collect(root, tokens, 0, found);
      return found;
    },
    isEmpty: () => isEmpty(root),
  };
}
