/** A timer that is this much too late was kept from its time. */
const lateMs = 20;
const everyMs = 10;

/**
 * How long this process stood still, in milliseconds, from now until the answered function is called: a bound of real time
 * is about the time that went by while it ran.
 */
export function watchPauses(): () => number {
  let pausedMs = 0;
  let last = performance.now();
  const look = () => {
    const now = performance.now();
    const overMs = now - last - everyMs;
    if (overMs > lateMs) pausedMs += overMs;
    last = now;
  };
  const timer = setInterval(look, everyMs);
  return () => {
    look();
    clearInterval(timer);
    return pausedMs;
  };
}
