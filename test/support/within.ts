/**
 * Looks until it is so; whoever begins to look later than `ms` from now must find it so. However slow the machine is, and
 * however long it pauses: nobody looks in a pause, so none is held against what is tested.
 */
export async function seenWithin(ms: number, look: () => Promise<boolean>, about: string): Promise<void> {
  const since = performance.now();
  for (;;) {
    const afterMs = performance.now() - since;
    if (await look()) return;
    if (afterMs > ms) throw new Error(`who looked after ${Math.round(afterMs)} ms did not see ${about}`);
    await Bun.sleep(10);
  }
}
