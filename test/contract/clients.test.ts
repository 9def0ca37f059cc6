import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFile, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type CompiledSchema, compileSchema } from "../../src/kit/json-schema/json-schema.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const root = resolve(import.meta.dir, "../..");

interface Answer {
  method: string;
  path: string;
  status: number;
  body: unknown;
}

interface Described {
  tags: [string];
  responses: Record<string, { content?: Record<string, { schema?: object; example?: unknown }> }>;
}

interface Document {
  paths: Record<string, Record<string, Described>>;
}

/** What a program said, once it has ended well. */
async function saidBy(...words: string[]): Promise<string> {
  const child = Bun.spawn(words, { cwd: root, stdout: "pipe", stderr: "pipe" });
  const [said, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  expect(await child.exited, `${words[0]}: ${said}${errors}`).toBe(0);
  return said;
}

/** Of what has REST routes. */
const groupsOf = (document: Document): string[] => [
  ...new Set(
    Object.entries(document.paths)
      .filter(([path]) => !path.startsWith("/svc.v1.") && path !== "/ws")
      .flatMap(([, methods]) => Object.values(methods).map(({ tags: [group] }) => group)),
  ),
];

/** The same, but no field that it does not name. */
function strict(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(strict);
  if (typeof schema !== "object" || schema === null) return schema;
  const parts = Object.entries(schema).map(([key, value]) => [key, strict(value)]);
  const isOpen = !("properties" in schema) || "additionalProperties" in schema;
  return { ...Object.fromEntries(parts), ...(!isOpen && { additionalProperties: false }) };
}

const isTime = (text: string): boolean => /^\d{4}-\d\d-\d\dT/.test(text);
const isId = (text: string): boolean => /^[a-z]{2,10}_[\w-]{20,}$/.test(text);
const kindOf = (text: string): string | undefined => /^([a-z]{2,10})_/.exec(text)?.[1];
/** Texts of many kinds: what a query finds, and rows of the audit beside those of a run's history. */
const varied = /(rows\[\]\.values\[\]|audit\.events\[\]\.id)$/;

/** Texts of an example that are no time or no id of the kind that a real answer has there. */
function unlike(shown: unknown, real: unknown, at: string): string[] {
  if (Array.isArray(shown) && Array.isArray(real)) return unlike(shown[0], real[0], `${at}[]`);
  if (typeof shown === "string" && typeof real === "string" && real !== "") {
    const isOther = (isId(shown) || isId(real)) && kindOf(shown) !== kindOf(real);
    return varied.test(at) || (!isOther && isTime(shown) === isTime(real))
      ? []
      : [`${at}: ${shown}, but ${real}`];
  }
  if (typeof shown !== "object" || typeof real !== "object" || !shown || !real) return [];
  return Object.entries(shown).flatMap(([name, value]) =>
    unlike(value, (real as Record<string, unknown>)[name], `${at}.${name}`),
  );
}

describe("clients that strangers generate from the served document", () => {
  let folder: string;
  let problems: string[];
  let document: Document;
  const servers: TestServer[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "svc-clients-"));
    servers.push(...(await Promise.all(engines.map((engine) => startTestServer({ engine })))));
    document = (await servers[0]!.api("/openapi.json")).body;
    await Bun.write(join(folder, "openapi.json"), JSON.stringify(document));
    for (const file of ["client.ts", "tour.ts"])
      await copyFile(join(import.meta.dir, "tour", file), join(folder, file));
    await symlink(join(root, "node_modules"), join(folder, "node_modules"));
    const compilerOptions = {
      ...{ target: "ESNext", module: "Preserve", moduleResolution: "bundler", noEmit: true, strict: true },
      ...{ lib: ["ESNext", "DOM", "DOM.Iterable"], types: [], allowImportingTsExtensions: true },
    };
    const config = { compilerOptions, include: ["tour.ts", "sdk"] };
    await Bun.write(join(folder, "tsconfig.json"), JSON.stringify(config));
    const program = join(root, "test/support/api-clients.ts");
    problems = JSON.parse(await saidBy(process.execPath, program, join(folder, "openapi.json"), folder));
  }, 120_000);
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.stop()));
    await rm(folder, { recursive: true, force: true });
  });

  test("nothing about the document is to be mended, says the linter: examples are what their schemas take", () => {
    expect(problems).toEqual([]);
  });

  test("the code of two generators compiles, and so does a program that calls every group", async () => {
    expect(await saidBy(join(root, "node_modules/.bin/tsc"), "-p", folder)).toBe("");
  }, 120_000);

  test("the calls succeed on both stores, and each answer is what the document says and shows", async () => {
    const { tour } = await import(join(folder, "tour.ts"));
    const answers: Answer[] = [];
    const onAnswer = (answer: Answer) => answers.push(answer);
    await Promise.all(
      servers.map(({ url, adminKey, env }) => tour({ url, adminKey, environment: env, onAnswer })),
    );
    const schemas = new Map<object, CompiledSchema>();
    const seen = new Set<string>();
    const wrong = answers.flatMap(({ method, path, status, body }) => {
      const described = document.paths[path]![method.toLowerCase()]!;
      const response = described.responses[status];
      if (response === undefined) return [`${method} ${path}: ${status} is not described`];
      seen.add(described.tags[0]);
      const { schema, example } = response.content?.["application/json"] ?? {};
      if (body === undefined || schema === undefined) return [];
      const odd = unlike(example, body, `${method} ${path}`);
      if (path.startsWith("/svc.v1.")) return odd;
      if (!schemas.has(schema)) schemas.set(schema, compileSchema(JSON.stringify(strict(schema))));
      const breach = schemas.get(schema)!.breachOf(body);
      return breach === undefined ? odd : [...odd, `${method} ${path}: ${JSON.stringify(breach)}`];
    });
    expect([...new Set(wrong)]).toEqual([]);
    expect(groupsOf(document).filter((group) => !seen.has(group))).toEqual([]);
  }, 120_000);
});
