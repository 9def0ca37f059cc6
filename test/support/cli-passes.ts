import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { processIo } from "../../src/cli/process-io.ts";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { runCli } from "../../src/cli/run.ts";
import { cliCases, type Person } from "./cli-cases.ts";

/** What all lines of a pass share. */
export interface Pass {
  folder: string;
  environment: Record<string, string>;
  /** By their names in the lines. */
  names: Record<string, string>;
  flags: readonly string[];
}

export interface Told {
  line: string;
  code: number | undefined;
  out: string;
  err: string;
}

type RunLine = (
  words: readonly string[],
  how: { environment: Record<string, string>; follows: boolean },
) => Promise<Omit<Told, "line">>;

/** The first id of an answer, or what `revision` says in it. */
function shownAs(as: string, out: string): string | undefined {
  const plain = out.replaceAll(/\u001b\[\d*m/g, "");
  if (as === "revision") return /revision\W+(\d+)/.exec(plain)?.[1];
  return (as === "session" ? /\b[0-9a-f]{64}\b/ : /\b[a-z]+_[0-9a-z-]{16,}/).exec(plain)?.[0];
}

/** Words as a shell splits them; a name may stand within any of them. */
const wordsOf = (line: string, names: Readonly<Record<string, string>>): string[] =>
  [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, bare]) =>
    (quoted ?? bare!).replaceAll(/\{(\w+)\}/g, (all, name: string) => names[name] ?? all),
  );

const sessions = { root: "/api/v1/platform/auth/login", ada: "/api/v1/auth/login" };

async function logIn({ environment, names, folder }: Pass, person: Person): Promise<string> {
  const email = person === "root" ? "root@svc.test" : `ada-${names.p}@example.test`;
  const password = (await Bun.file(join(folder, "password")).text()).trim();
  const response = await fetch(`${environment.SVC_SERVER_URL}${sessions[person]}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ email, password }),
  });
  return ((await response.json()) as { token: string }).token;
}

/** Every line after the other; what one shows the next ones name. */
export async function runCases(pass: Pass, run: RunLine): Promise<Told[]> {
  const names = { ...pass.names };
  const told: Told[] = [];
  for (const { line, as, by, follows = false } of cliCases) {
    const key = by ? { SVC_API_KEY: await logIn(pass, by) } : {};
    const words = [...wordsOf(line, names), ...pass.flags];
    const one = await run(words, { environment: { ...pass.environment, ...key }, follows });
    if (as !== undefined) names[as] = shownAs(as, one.out) ?? "nothing-shown";
    told.push({ line, ...one });
  }
  return told;
}

export const refusalOf = ({ line, code, err }: Told): string | undefined =>
  code === 0 ? undefined : `${line}: ${code} ${err}`;

// As a process: PASS is the file of a pass, and what was told is written to TOLD.
if (import.meta.main) {
  const [passFile = "", toldFile = ""] = process.argv.slice(2);
  const pass: Pass = await Bun.file(passFile).json();
  const { isTerminal, columns, input, clock, out: write, note, status } = processIo();
  const told = await runCases(pass, async (words, { environment, follows }) => {
    const said = { out: "", err: "" };
    const over = new AbortController();
    const decoder = new TextDecoder();
    const code = await runCli(
      words,
      {
        ...{ environment, folder: pass.folder, home: pass.folder, isTerminal, columns, input, clock, status },
        async out(text) {
          said.out += typeof text === "string" ? text : decoder.decode(text, { stream: true });
          await write(text);
          if (follows) over.abort();
        },
        note(text) {
          said.err += `svc: ${text}\n`;
          note(text);
        },
        signal: over.signal,
      },
      { rawCommands },
    );
    return { code, ...said };
  });
  writeFileSync(toldFile, JSON.stringify({ isTerminal, told }));
  process.exit(0);
}

export const passProgram = join(import.meta.dir, "cli-passes.ts");
