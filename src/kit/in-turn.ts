/** Work of one key begins when what was asked for it before is over; keys do not wait for each other. Work never rejects. */
export function inTurn(): (key: string, work: () => Promise<void>) => void {
  /** The last work of each key that is not over. */
  const tails = new Map<string, Promise<void>>();
  return (key, work) => {
    const tail = (tails.get(key) ?? Promise.resolve()).then(work).then(() => {
      if (tails.get(key) === tail) tails.delete(key);
    });
    tails.set(key, tail);
  };
}
