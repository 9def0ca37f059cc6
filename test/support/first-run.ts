import { mkdir, mkdtemp, symlink } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { findProgram, freePort, removeFolder } from "./process.ts";
import { withPart } from "./reference.ts";
import { until } from "./until.ts";

/** What a person types in two terminals, from an empty folder to a completed run. */
export const firstRun = {
  project: ["svc init shop", "cd shop", "npm install", "npm test"],
  server: "npm run dev",
  event: [`svc emit user.joined --data '{"name": "Ada"}' --wait`, "svc runs"],
} as const;

export const firstRunPage = join(import.meta.dir, "../../src/docs/pages/start.md");

/** What a terminal shows in the end: without colours, and of a line that was replaced its last form. */
const shownText = (said: string): string =>
  said
    .replaceAll(/\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g, "")
    .split(/\r?\n/)
    .map((line) => line.split("\r").at(-1)!.trimEnd())
    .join("\n")
    .trim();

/** What such a person has: Node with npm and the shell that it starts. No Bun is beside them. */
const programsOfDebian = { node: "nodejs", npm: "npm", sh: "dash" };

async function linkPrograms(folder: string): Promise<void> {
  await mkdir(folder);
  for (const [name, debianPackage] of Object.entries(programsOfDebian))
    await symlink(findProgram([name], debianPackage), join(folder, name));
}

/** By these npm reaches the registry from this machine. */
const networkNames = ["NODE_EXTRA_CA_CERTS", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "npm_config_registry"];

const npmVariables = {
  ...Object.fromEntries(
    networkNames.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  ),
  // What was fetched before is not fetched again, though the home is a new one.
  ...{ npm_config_cache: join(homedir(), ".npm"), npm_config_prefer_offline: "true" },
  // A connection that stands still is given up after five minutes otherwise.
  ...{
    npm_config_fetch_timeout: "15000",
    npm_config_fetch_retries: "4",
    npm_config_fetch_retry_mintimeout: "1000",
  },
  // What would be drawn over, and what says when npm itself is old.
  ...{ npm_config_progress: "false", npm_config_update_notifier: "false" },
};

function typed(command: string, cwd: string, env: Record<string, string>) {
  const script = [findProgram(["script"], "bsdutils"), "-qefc", command, "/dev/null"];
  const child = Bun.spawn(script, { cwd, env, stdin: "pipe", stdout: "pipe", stderr: "pipe" });
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
  const programs = join(home, "programs");
  const variables = {
    ...{ HOME: home, PATH: `${programFolder}:${programs}`, TERM: "xterm", SVC_GRPC_PORT: "0" },
    SVC_SERVER_URL: `http://127.0.0.1:${port}`,
    ...npmVariables,
  };
  const project = join(home, "shop");
  const portFlag = ` --port ${port}`;
  const asPeopleSee = (text: string) =>
    shownText(text).replaceAll(home, "~").replaceAll(`:${port}`, ":9123").replaceAll(portFlag, "");
  const shown = (command: string, text: string) => [`$ ${command}`, ...(text && [text])].join("\n");
  const type = async (command: string, cwd: string): Promise<string> => {
    if (command.startsWith("cd ")) return shown(command, "");
    const { said, ended } = typed(command, cwd, variables);
    if ((await ended()) !== 0) throw new Error(`${command}:\n${said.text}`);
    return shown(command, asPeopleSee(said.text));
  };
  try {
    await linkPrograms(programs);
    const first: string[] = [];
    for (const command of firstRun.project)
      first.push(await type(command, command.startsWith("svc init") ? home : project));
    const serving = typed(`${firstRun.server} --${portFlag}`, project, variables);
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
