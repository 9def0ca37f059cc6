import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findOperation } from "../../src/cli/operations.ts";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { commandAt } from "../../src/cli/run.ts";
import { answerSchemas } from "../support/answer-schemas.ts";
import { type Cli, makeCli } from "../support/cli.ts";
import { cliCases } from "../support/cli-cases.ts";
import { furnishCli } from "../support/cli-furnished.ts";
import { type Pass, passProgram, refusalOf, runCases, type Told } from "../support/cli-passes.ts";
import { wholeProgram } from "../support/commands.ts";
import { isNight } from "../support/night.ts";
import { findProgram, run } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const program = wholeProgram();
const commandOf = (line: string) => commandAt(program, line.split(" "));

describe.each(engines)("every command on %s", (engine) => {
  let server: TestServer;
  let cli: Cli;
  let stop = () => {};
  beforeEach(async () => {
    // Longer messages than the bus takes become dead letters; what is called stands on this machine.
    const settings = { busPayloadMax: 1_024, pushAllowPrivate: ["127.0.0.0/8"], webhookRetryMs: 20 };
    server = await startTestServer({ engine, settings });
    cli = makeCli({}, { rawCommands });
    writeFileSync(join(cli.folder, "password"), "long-enough-2\n");
    writeFileSync(join(cli.folder, "next-password"), "long-enough-3\n");
    writeFileSync(join(cli.folder, "new-key"), "a-key-that-is-long-enough-1\n");
  }, 120_000);
  afterEach(async () => {
    stop();
    cli?.remove();
    await server?.stop();
  });

  async function passOf(p: string, flags: readonly string[] = []): Promise<Pass> {
    const furnished = await furnishCli(server, p);
    stop = furnished.stop;
    writeFileSync(join(cli.folder, `counts-${p}.sql`), `CREATE TABLE proj_counts_${p} (id text PRIMARY KEY)`);
    return {
      ...{ folder: cli.folder, flags, names: furnished.names },
      environment: { SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey },
    };
  }

  const wrongOf = (told: readonly Told[]): string[] => told.flatMap((one) => refusalOf(one) ?? []);

  test("says with --json what its operation's schema describes", async () => {
    const check = answerSchemas((await server.api("/openapi.json")).body);
    const told = await runCases(await passOf("json", ["--json"]), async (words, { environment, follows }) =>
      cli.run(words, { environment, ...(follows && { onOut: (_text, stop) => stop() }) }),
    );
    expect(wrongOf(told)).toEqual([]);
    const breaches = told.flatMap(({ line, code, out }, at): { line: string; breach: string }[] => {
      if (code !== 0 || cliCases[at]!.follows) return [];
      const answer: unknown = JSON.parse(out);
      // Without a time it answers what another operation does.
      const described = /^Operation (\S+);/m.exec(commandOf(line).command.description())?.[1];
      const named = line === "inspect {run}" ? "timetravel.timeline" : described;
      const operation = named === undefined ? undefined : findOperation(named);
      const breach = operation?.mode === "unary" ? check(operation, answer) : undefined;
      return breach === undefined ? [] : [{ line, breach }];
    });
    expect(breaches).toEqual([]);
  }, 120_000);

  test.each(
    (
      [
        ["with colours on a terminal", true],
        ["without colours in a pipe", false],
      ] as const
    ).filter(([, onTerminal]) => isNight || !onTerminal),
  )(
    "says the same to people: %s",
    async (_where, onTerminal) => {
      const passFile = join(cli.folder, "pass.json");
      const toldFile = join(cli.folder, "told.json");
      writeFileSync(passFile, JSON.stringify(await passOf("people")));
      const words = [process.execPath, passProgram, passFile, toldFile];
      const command = onTerminal
        ? [findProgram(["script"], "bsdutils"), "-qefc", `stty cols 200; ${words.join(" ")}`, "/dev/null"]
        : words;
      const said = await run(command);
      const { isTerminal, told }: { isTerminal: boolean; told: Told[] } = await Bun.file(toldFile).json();
      expect(isTerminal).toBe(onTerminal);
      expect(wrongOf(told)).toEqual([]);
      expect(said.includes("\u001b[32m")).toBe(onTerminal);
      expect(said).not.toContain(server.adminKey);
    },
    120_000,
  );

  test("an environment of another org is as unknown as none", async () => {
    const root = { email: "root@svc.test", password: "long-enough-1" };
    await server.api("/api/v1/platform/bootstrap", { body: { ...root, name: "Root" } });
    const { token } = (await server.api("/api/v1/platform/auth/login", { body: root })).body;
    const environment = { SVC_SERVER_URL: server.url, SVC_API_KEY: token };
    const far = await cli.run(
      ["tenant", "provision", "--org-name", "far", "--as-org", "org_default", "--json"],
      { environment },
    );
    const foreign = /env_\w+/.exec(far.out)?.[0] ?? far.err;
    const asked = (env: string) =>
      cli.run(["runs", "--env", env], { environment: { ...environment, SVC_API_KEY: server.adminKey } });
    const none = await asked("env_nowhere");
    expect(none.code).toBe(2);
    expect(await asked(foreign)).toEqual(none);
  }, 120_000);
});
