/** Work of one key begins when the work before it is over, well or not. Keys do not wait for each other. */
export function inTurn(): <Result>(key: string, work: () => Promise<Result>) => Promise<Result> {
  /** The last work of each key that is not over. */
  const tails = new Map<string, Promise<void>>();
  return (key, work) => {
    const result = (tails.get(key) ?? Promise.resolve()).then(work);
    const end = () => {
      if (tails.get(key) === tail) tails.delete(key);
    };
    const tail: Promise<void> = result.then(end, end);
    tails.set(key, tail);
    return result;
  };
}
