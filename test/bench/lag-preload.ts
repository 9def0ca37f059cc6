// Preloaded into the server under test: how late the event loop is, told on SIGUSR2 and forgotten then.
const everyMs = 5;
let late: number[] = [];
let due = performance.now() + everyMs;

function sample(): void {
  const now = performance.now();
  late.push(Math.max(0, now - due));
  due = now + everyMs;
  setTimeout(sample, everyMs).unref();
}

setTimeout(sample, everyMs).unref();
process.on("SIGUSR2", () => {
  late.sort((a, b) => a - b);
  const at = (share: number) => late[Math.min(late.length - 1, Math.floor(late.length * share))] ?? 0;
  process.stderr.write(`lag ${JSON.stringify({ p50: at(0.5), p99: at(0.99), max: at(1) })}\n`);
  late = [];
});
