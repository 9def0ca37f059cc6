/** Stored JSON; undefined where it cannot be read: loops skip such a row, so that it holds up no other. */
export function storedJson<Value>(text: string): Value | undefined {
  try {
    return JSON.parse(text) as Value;
  } catch {
    return undefined;
  }
}
