import { mkdtemp } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { findProgram, freePort, removeFolder } from "./process.ts";
import { withPart } from "./reference.ts";
import { until } from "./until.ts";

/** What a person types in two terminals, from an empty folder to a completed run. */
export const firstRun = {
  project: ["svc init shop", "cd shop", "bun install", "bun test"],
  server: "svc dev --worker src/worker.ts",
  event: [`svc emit user.joined --data '{"name": "Ada"}' --wait`, "svc runs"],
} as const;

export const firstRunPage = join(import.meta.dir, "../../src/docs/pages/start.md");

/** What a terminal shows in the end: without colours, and of a line that was replaced its last form. */
const shownText = (said: string): string =>
  said
    .replaceAll(/\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g, "")
    .split(/\r?\n/)
    .map((line) => line.split("\r").at(-1)!.trimEnd())
    // What Bun shows of its progress.
    .filter((line) => !line.startsWith("  🔍"))
    .join("\n")
    .trim();

interface Place {
  cwd: string;
  variables: Record<string, string>;
}

function typed(command: string, { cwd, variables }: Place) {
  const script = [findProgram(["script"], "bsdutils"), "-qefc", command, "/dev/null"];
  const child = Bun.spawn(script, { cwd, env: variables, stdin: "pipe", stdout: "pipe", stderr: "pipe" });
  const said = { text: "" };
  const decoder = new TextDecoder();
  const read = (async () => {
    for await (const bytes of child.stdout) said.text += decoder.decode(bytes, { stream: true });
  })();
  const ended = async () => {
    const code = await child.exited;
    await read;
    return code;
  };
  return { child, said, ended };
}

/** Types it all, with the `svc` that lies in a folder, and answers what two terminals show. */
export async function recordFirstRun(programFolder: string): Promise<{ first: string; second: string }> {
  const home = await mkdtemp(join(tmpdir(), "svc-first-run-"));
  const port = await freePort();
  const ownPath = `${programFolder}:/usr/bin:/bin`;
  const variables = {
    ...{ HOME: home, PATH: ownPath, TERM: "xterm", SVC_GRPC_PORT: "0" },
    SVC_SERVER_URL: `http://127.0.0.1:${port}`,
    BUN_INSTALL_CACHE_DIR: process.env.BUN_INSTALL_CACHE_DIR ?? join(homedir(), ".bun/install/cache"),
  };
  const project = join(home, "shop");
  const asPeopleSee = (text: string) => shownText(text).replaceAll(home, "~").replaceAll(`:${port}`, ":9123");
  const shown = (command: string, text: string) => [`$ ${command}`, ...(text && [text])].join("\n");
  /** svc needs no Bun beside it. */
  const placeOf = (command: string, cwd: string): Place => ({
    ...{ cwd },
    variables: command.startsWith("bun ")
      ? { ...variables, PATH: `${dirname(process.execPath)}:${ownPath}` }
      : variables,
  });
  const type = async (command: string, cwd: string): Promise<string> => {
    if (command.startsWith("cd ")) return shown(command, "");
    const { said, ended } = typed(command, placeOf(command, cwd));
    if ((await ended()) !== 0) throw new Error(`${command}:\n${said.text}`);
    return shown(command, asPeopleSee(said.text));
  };
  try {
    const first: string[] = [];
    for (const command of firstRun.project)
      first.push(await type(command, command.startsWith("svc init") ? home : project));
    const serving = typed(`${firstRun.server} --port ${port}`, placeOf(firstRun.server, project));
    const second: string[] = [];
    try {
      const says = (words: string) =>
        until(() => serving.said.text.includes(words), { about: words, deadlineMs: 20_000 });
      await says("svc emit EVENT");
      const workers = `${variables.SVC_SERVER_URL}/api/v1/workers`;
      await until(async () => (await (await fetch(workers)).json()).count === 1, {
        ...{ about: "the worker", deadlineMs: 20_000 },
      });
      for (const command of firstRun.event) second.push(await type(command, project));
      await until(() => /greet {2}completed/.test(shownText(serving.said.text)), {
        ...{ about: "the line of the run", deadlineMs: 20_000 },
      });
    } catch (error) {
      throw new Error(serving.said.text, { cause: error });
    } finally {
      serving.child.stdin.write("\u0003");
      await serving.child.stdin.flush();
      await serving.ended();
    }
    first.push(shown(firstRun.server, asPeopleSee(serving.said.text.replace(/\^C\s*$/, ""))));
    return { first: first.join("\n\n"), second: second.join("\n\n") };
  } finally {
    await removeFolder(home);
  }
}

const block = (text: string) => `\`\`\`text\n${text}\n\`\`\``;

// `bun run docs:record FOLDER`: the folder has the executable.
if (import.meta.main) {
  const folder = process.argv[2];
  if (folder === undefined) throw new Error("bun run docs:record FOLDER: the folder with the executable svc");
  const { first, second } = await recordFirstRun(folder);
  const text = `${block(first)}\n\nIn the other terminal:\n\n${block(second)}`;
  await Bun.write(firstRunPage, withPart(await Bun.file(firstRunPage).text(), "recording", text));
  process.exit(0);
}
