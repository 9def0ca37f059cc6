const endSignals = ["SIGTERM", "SIGINT"] as const;

/**
 * On the first SIGTERM or SIGINT runs `leave`, then lets the signal end the process as usual; a second signal
 * ends it at once. Returns a function that removes the handlers. Does nothing where there is no process.
 */
export function handleEndSignals(leave: () => Promise<unknown>): () => void {
  const { process } = globalThis;
  if (typeof process?.once !== "function") return () => {};
  const release = () => {
    for (const name of endSignals) process.removeListener(name, onSignal);
  };
  function onSignal(name: NodeJS.Signals): void {
    release();
    void leave().finally(() => process.kill(process.pid, name));
  }
  for (const name of endSignals) process.on(name, onSignal);
  return release;
}
