import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { isRunning, type ProcessMark } from "../../cluster/processes.ts";
import { nodeUrlOf, partsOf, readState, type State } from "../../cluster/state.ts";
import { removeFolder } from "../support/process.ts";
import { type Caller, callerOf, readKey } from "../support/server.ts";

export const tools = resolve(import.meta.dir, "../../cluster");

/** How a command ended, and what it said. */
export interface CommandOutcome {
  out: string;
  err: string;
  code: number;
}

/** A folder for a cluster of this machine, with the commands of operators. */
export interface ClusterFolder {
  folder: string;
  tool(name: "up.ts" | "down.ts", ...args: string[]): Promise<CommandOutcome>;
  /** Lines of a shell that has read the variables of the cluster. */
  shell(lines: string): Promise<CommandOutcome>;
  state(): State;
  marks(): Map<string, ProcessMark | undefined>;
  markOf(name: string): ProcessMark;
  /** Names of the parts that run, in the order in which they start. */
  running(): string[];
  nodes(): Promise<Caller[]>;
  close(): Promise<void>;
}

export async function openClusterFolder(): Promise<ClusterFolder> {
  // Nobody but us may enter it, as below /root: PostgreSQL's user neither.
  const home = await mkdtemp(join(tmpdir(), "svc-up-"));
  const folder = join(home, "cluster");
  // However this process ends, nothing stays behind.
  const guard = Bun.spawn(
    [
      ...["sh", "-c", 'cat >/dev/null; "$1" run "$2" --dir "$3" --wipe; rm -rf "$4"', "guard"],
      ...[process.execPath, join(tools, "down.ts"), folder, home],
    ],
    { stdin: "pipe", stdout: "ignore", stderr: "ignore" },
  );
  const run = async (command: string[]): Promise<CommandOutcome> => {
    const child = Bun.spawn(command, {
      cwd: home,
      env: { PATH: process.env.PATH ?? "", SVC_POLL_HOLD_MS: "1234" },
      stdout: "pipe",
      stderr: "pipe",
    });
    const [out, err] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    return { out, err, code: await child.exited };
  };
  const tool: ClusterFolder["tool"] = (name, ...args) =>
    run([process.execPath, "run", join(tools, name), "--dir", folder, ...args]);
  const state = (): State => readState(folder) as State;
  const marks = () => new Map(partsOf(state()).map(({ name, process }) => [name, process]));
  return {
    folder,
    tool,
    shell: (lines) => run(["bash", "-euc", `. ${folder}/env\n${lines}`]),
    state,
    marks,
    markOf: (name) => marks().get(name) as ProcessMark,
    running: () => [...marks()].filter(([, mark]) => isRunning(mark)).map(([name]) => name),
    async nodes() {
      const key = await readKey(state().keyFile);
      return partsOf(state(), "node").map((part) =>
        callerOf(
          () => nodeUrlOf(part),
          () => key,
        ),
      );
    },
    async close() {
      await tool("down.ts", "--wipe");
      guard.kill();
      await removeFolder(home);
    },
  };
}
