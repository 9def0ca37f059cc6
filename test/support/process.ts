import { closeSync, existsSync, openSync } from "node:fs";
import { rm } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";

/** Where a program is, by its first name found: on the PATH, or as a pattern over versions. */
export function findProgram(names: string[], debianPackage: string): string {
  const path = `${process.env.PATH ?? ""}:/usr/sbin:/usr/local/sbin:/usr/bin`;
  for (const name of names) {
    if (name.startsWith("/")) {
      const found = [...new Bun.Glob(name.slice(1)).scanSync({ cwd: "/", absolute: true })].sort().at(-1);
      if (found !== undefined) return found;
    } else {
      const found = Bun.which(name, { PATH: path });
      if (found !== null) return found;
    }
  }
  throw new Error(`${names[0]} was not found. Install it: apt-get install ${debianPackage}`);
}

/** A port of the loopback address that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((done, failed) => {
    const probe = createServer();
    probe.once("error", failed);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() =>
        typeof address === "object" && address ? done(address.port) : failed(new Error("no port")),
      );
    });
  });
}

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

export async function outputOf(folder: string): Promise<string> {
  const path = join(folder, "output.log");
  return existsSync(path) ? (await Bun.file(path).text()).slice(-4_000) : "";
}

export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 3 });
}

/** Runs a program to its end; throws with its output when it fails. */
export async function run(command: string[]): Promise<string> {
  const child = Bun.spawn(command, { cwd: "/", stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0) throw new Error(`${command.join(" ")} failed:\n${out}${err}`);
  return out;
}
