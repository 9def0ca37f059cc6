import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import type { Command } from "commander";
import { version } from "../kit/version.ts";
import { type Io, refused, usage } from "./io.ts";
import { sdkPackage } from "./sdk-package.ts";

/** How a project's script calls these commands. The executable is found by name, wherever the project is. */
const ownCommand = Bun.isStandaloneExecutable ? "svc" : `bun "${join(import.meta.dir, "../main.ts")}"`;

/** The same where a person types it, in a project whose npm has installed Bun. */
const typedCommand = Bun.isStandaloneExecutable ? ownCommand : `npx ${ownCommand}`;

const packagePath = `vendor/svc-${version}.tgz`;

/** The versions that svc itself is checked with: those of package.json, which a test compares. */
const checkedVersions = { "@types/bun": "1.4.4", bun: "1.4.5", typescript: "7.0.2" };

const packageName = (folder: string): string =>
  basename(folder)
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/g, "-")
    .replaceAll(/^[._-]+|[._-]+$/g, "") || "svc-project";

const packageJson = (folder: string): string =>
  `${JSON.stringify(
    {
      name: packageName(folder),
      private: true,
      type: "module",
      scripts: { dev: `${ownCommand} dev --worker src/worker.ts`, test: "bun test", types: "tsc" },
      dependencies: { svc: `file:${packagePath}` },
      devDependencies: checkedVersions,
      // Bun's package fetches its program when it is installed: npm asks by the one name, Bun by the other.
      allowScripts: { [`bun@${checkedVersions.bun}`]: true },
      trustedDependencies: ["bun"],
    },
    null,
    2,
  )}\n`;

const tsconfig = `${JSON.stringify(
  {
    compilerOptions: {
      target: "ESNext",
      module: "Preserve",
      moduleResolution: "bundler",
      lib: ["ESNext", "DOM", "DOM.Iterable", "DOM.AsyncIterable"],
      types: ["bun"],
      noEmit: true,
      strict: true,
      noUncheckedIndexedAccess: true,
      exactOptionalPropertyTypes: true,
      allowImportingTsExtensions: true,
      skipLibCheck: true,
    },
    include: ["src", "test"],
  },
  null,
  2,
)}\n`;

const greet = `import { defineEvents } from "svc";

export const events = defineEvents<{ "user.joined": { name: string } }>();

/** Runs for each event: a finished step is stored, and never runs again. */
export const greet = events.createFunction({ id: "greet", event: "user.joined" }, async ({ event, step }) => {
  const text = await step.run("write", () => \`Hello \${event.data.name}\`);
  await step.sleep("let it rest", "2s"); // the worker is free meanwhile; "7d" works as well
  return step.run("send", () => ({ sent: text }));
});
`;

const worker = `import { createClient, createWorker } from "svc";
import { events, greet } from "./greet.ts";

const client = createClient({ events }); // SVC_SERVER_URL, SVC_API_KEY, SVC_ENV
const worker = createWorker({ client, functions: [greet] }); // drains on SIGTERM
await worker.start();
`;

const test = `import { expect, test } from "bun:test";
import { testFunction } from "svc";
import { greet } from "../src/greet.ts";

test("who joins is greeted, whatever crashes", async () => {
  const { status, output } = await testFunction(greet).crashAfter("every").run({ name: "Ada" });
  expect({ status, output }).toEqual({ status: "completed", output: { sent: "Hello Ada" } });
});
`;

const compose = `# What svc serve needs for several nodes:
#   svc serve --database-url postgres://svc:svc@127.0.0.1:5432/svc --nats-url nats://127.0.0.1:4222
services:
  postgres:
    image: postgres:16
    environment: { POSTGRES_USER: svc, POSTGRES_PASSWORD: svc, POSTGRES_DB: svc }
    ports: ["127.0.0.1:5432:5432"]
    volumes: ["postgres:/var/lib/postgresql/data"]
  nats:
    image: nats:2
    command: ["-js", "-sd", "/data"]
    ports: ["127.0.0.1:4222:4222"]
    volumes: ["nats:/data"]
volumes: { postgres: {}, nats: {} }
`;

const filesOf = (folder: string): Readonly<Record<string, string>> => ({
  "package.json": packageJson(folder),
  "tsconfig.json": tsconfig,
  "src/greet.ts": greet,
  "src/worker.ts": worker,
  "test/greet.test.ts": test,
  "compose.yaml": compose,
  ".gitignore": "node_modules/\n.svc/\n",
});

/** All files or none: a project that is there already is left alone. */
async function write(folder: string): Promise<void> {
  const texts = filesOf(folder);
  const there = [...Object.keys(texts), packagePath].find((name) => existsSync(join(folder, name)));
  if (there !== undefined) throw usage(`${join(folder, there)} exists: choose another folder`);
  const sdk = await sdkPackage().catch((error: Error) => {
    throw refused(`the SDK cannot be packed: ${error.message}`);
  });
  const written: string[] = [];
  try {
    for (const [name, content] of [...Object.entries(texts), [packagePath, sdk] as const]) {
      const file = join(folder, name);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, content, { flag: "wx" });
      written.push(file);
    }
  } catch (error) {
    for (const file of written) rmSync(file, { force: true });
    throw usage(`${folder} cannot be written: ${(error as NodeJS.ErrnoException).code}`);
  }
}

/** `svc init [FOLDER]` */
export function addInit(program: Command, io: Io): void {
  program
    .command("init [folder]")
    .description("A project with one function, its test, a worker and a compose file.")
    .action(async (name = ".") => {
      const folder = resolve(io.folder, name);
      await write(folder);
      const enter = folder === io.folder ? "" : `  cd ${name}\n`;
      await io.out(`${folder} is a project. Next:

${enter}  npm install
  npm test
  npm run dev                                              # svc dev, with the worker
  ${typedCommand} emit user.joined --data '{"name": "Ada"}' --wait     # in another terminal
`);
      if (Bun.isStandaloneExecutable && Bun.which("svc") === null)
        io.note(`its scripts call svc: put ${process.execPath} into a folder of PATH`);
    });
}
