/**
 * Polls `condition`, which must hold for whoever asks more than `withinMs` from now. What was asked before may be answered
 * as late as it may: a pause between question and answer says nothing about what is promised.
 */
export async function holdsWithin(
  withinMs: number,
  condition: () => Promise<boolean>,
  about: string,
): Promise<void> {
  const since = performance.now();
  for (;;) {
    const askedAfterMs = Math.round(performance.now() - since);
    if (await condition()) return;
    if (askedAfterMs > withinMs) throw new Error(`${about}: not yet for a question ${askedAfterMs} ms later`);
    await Bun.sleep(10);
  }
}
