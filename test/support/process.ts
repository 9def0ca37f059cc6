import { closeSync, existsSync, openSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";

export { freePort, isFree } from "../../cluster/ports.ts";
export { findProgram, run } from "../../cluster/programs.ts";

/** Names the executable that nodes run (`build:binary`): it begins with half the computation of the sources. */
export const executableVariable = "SVC_TEST_EXECUTABLE";

export interface RunningProgram {
  pid: number;
  running(): boolean;
  exited: Promise<unknown>;
  signal(name: NodeJS.Signals): void;
  /** The guard is told that all is in order: it no longer removes the folder. */
  release(): void;
}

// The guard holds a pipe to this process. When the pipe ends, however this process ended, nothing is left behind.
const guardScript = `
trap '' INT TERM HUP
cat >/dev/null
kill -QUIT "$1" 2>/dev/null
rounds=0
while [ $rounds -lt 40 ] && kill -0 "$1" 2>/dev/null && ! grep -q ') Z' "/proc/$1/stat" 2>/dev/null; do
  sleep 0.05
  rounds=$((rounds + 1))
done
kill -KILL "$1" 2>/dev/null
rm -rf -- "$2"
`;

/** Starts a server program whose output goes to `output.log` in `folder`; program and folder end with this process. */
export function startProgram(command: string[], folder: string): RunningProgram {
  const log = openSync(join(folder, "output.log"), "a");
  const child = Bun.spawn(command, { cwd: folder, stdin: "ignore", stdout: log, stderr: log });
  closeSync(log);
  const guard = Bun.spawn(["sh", "-c", guardScript, "guard", String(child.pid), folder], {
    stdin: "pipe",
    stdout: "ignore",
    stderr: "ignore",
  });
  child.unref();
  guard.unref();
  return {
    pid: child.pid,
    running: () => child.exitCode === null && child.signalCode === null,
    exited: child.exited,
    signal: (name) => child.kill(name),
    release: () => guard.kill("SIGKILL"),
  };
}

/** All that a program has written. */
export async function outputOf(folder: string): Promise<string> {
  const path = join(folder, "output.log");
  return existsSync(path) ? await Bun.file(path).text() : "";
}

/** As much of it as anyone reads of a failure. */
export const lastWordsOf = async (folder: string): Promise<string> => (await outputOf(folder)).slice(-4_000);

export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 3 });
}
