/**
 * `bun run build:sdk [FOLDER]`: the SDK as a package of its own in `dist/sdk`, for `npm pack` and
 * `npm install`. One file an entry and a module form, declarations beside them, no dependencies.
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";

const root = join(import.meta.dir, "../..");
const source = join(root, "src/sdk");
const target = resolve(process.argv[2] ?? join(root, "dist/sdk"));

/** By the name a user imports. `svc/sdk` is the name that older examples have. */
const entries = [
  { names: [".", "./sdk"], file: "index", runtime: "node" },
  { names: ["./client"], file: "browser", runtime: "browser" },
] as const;
const forms = [
  { condition: "import", format: "esm", js: ".js", types: ".d.ts" },
  { condition: "require", format: "cjs", js: ".cjs", types: ".d.cts" },
] as const;

/** The same compiler and rules as the tree's, without the types of any runtime but the web's. */
const compilerFlags = [
  ...["--declaration", "--emitDeclarationOnly", "--strict", "--exactOptionalPropertyTypes", "--skipLibCheck"],
  ...["--allowImportingTsExtensions", "--target", "esnext", "--module", "preserve"],
  ...[
    "--moduleResolution",
    "bundler",
    "--lib",
    "esnext,dom,dom.iterable,dom.asynciterable",
    "--types",
    "bun",
  ],
];

function run(command: string, ...args: string[]): void {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: "utf8" });
  if (status !== 0) throw new Error(`${command} ${args[0]}: ${stdout}${stderr}`);
}

async function bundle(): Promise<void> {
  for (const { file, runtime } of entries)
    for (const { format, js } of forms) {
      const entrypoint = join(source, `${file}.ts`);
      const built = await Bun.build({ entrypoints: [entrypoint], target: runtime, format });
      writeFileSync(join(target, `${file}${js}`), await built.outputs[0]!.text());
    }
}

/** Declarations keep the imports of their sources: `./client.ts` becomes `./client.js` or `./client.cjs`. */
function declare(): void {
  const folder = mkdtempSync(join(tmpdir(), "svc-sdk-"));
  const files = entries.map(({ file }) => join(source, `${file}.ts`));
  try {
    const compiler = join(root, "node_modules/.bin/tsc");
    run(compiler, "--ignoreConfig", ...compilerFlags, "--rootDir", source, "--outDir", folder, ...files);
    for (const name of new Bun.Glob("**/*.d.ts").scanSync({ cwd: folder }))
      for (const { js, types } of forms) {
        const text = readFileSync(join(folder, name), "utf8");
        const own = text.replaceAll(/(["'])(\.{1,2}\/[^"']+)\.ts\1/g, `$1$2${js}$1`);
        const written = join(target, "types", name.replace(/\.d\.ts$/, types));
        mkdirSync(dirname(written), { recursive: true });
        writeFileSync(written, own);
      }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function describe(): void {
  const { name, version, license } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const conditionsOf = (file: string) =>
    Object.fromEntries(
      forms.map(({ condition, js, types }) => [
        condition,
        { types: `./types/${file}${types}`, default: `./${file}${js}` },
      ]),
    );
  const exports = entries.flatMap(({ names, file }) => names.map((one) => [one, conditionsOf(file)]));
  const description = {
    ...{ name, version, license, type: "module", sideEffects: false },
    description: "Functions, workers and clients of svc. No dependencies; Node 20 or newer, Bun, browsers.",
    ...{ main: "./index.cjs", module: "./index.js", types: "./types/index.d.ts" },
    exports: { ...Object.fromEntries(exports), "./package.json": "./package.json" },
    // For compilers that do not read `exports`.
    typesVersions: {
      "*": Object.fromEntries(
        entries.flatMap(({ names, file }) =>
          names.filter((one) => one !== ".").map((one) => [one.slice(2), [`./types/${file}.d.ts`]]),
        ),
      ),
    },
    engines: { node: ">=20" },
  };
  writeFileSync(join(target, "package.json"), `${JSON.stringify(description, null, 2)}\n`);
  cpSync(join(source, "README.md"), join(target, "README.md"));
}

rmSync(target, { recursive: true, force: true });
mkdirSync(join(target, "types"), { recursive: true });
await bundle();
declare();
describe();
console.log(`npm install ${target}`);
