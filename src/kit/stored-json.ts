/** What is stored as JSON; undefined where it cannot be read: loops pass over one such row, which holds up no other. */
export function storedJson<Value>(text: string): Value | undefined {
  try {
    return JSON.parse(text) as Value;
  } catch {
    return undefined;
  }
}
