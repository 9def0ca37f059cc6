/**
 * `bun run build:binary [FILE]`: the server and its commands as one executable, `dist/svc`, that needs no
 * node_modules and no source tree. What the tree makes or reads while it runs is made here and lies inside.
 * Beside it: what it is made of, as `bun run build:sbom` says it.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { licencesName, writeSbom } from "./sbom.ts";

const root = join(import.meta.dir, "../..");
const target = resolve(process.argv[2] ?? join(root, "dist/svc"));

interface BuiltFile {
  name: string;
  contentType: string;
  bytes: Uint8Array;
}

/** By the platform, what libsql calls the package of its addon. */
const addons: Readonly<Record<string, string>> = {
  "linux-x64": "linux-x64-gnu",
  "linux-arm64": "linux-arm64-gnu",
  "darwin-x64": "darwin-x64",
  "darwin-arm64": "darwin-arm64",
};

function addonPackage(): string {
  const platform = `${process.platform}-${process.arch}`;
  const name = addons[platform];
  if (name === undefined) throw new Error(`build:binary: libsql has no addon for ${platform}`);
  return `@libsql/${name}`;
}

/** Replaces a text that stands once in a file. A changed dependency stops the build, not the executable. */
function edited(file: string, old: string, next: string): string {
  const parts = readFileSync(file, "utf8").split(old);
  if (parts.length !== 2) throw new Error(`${relative(root, file)} does not have once: ${old}`);
  return parts.join(next);
}

const embedded = (name: string, file: string): string =>
  `import ${name} from ${JSON.stringify(file)} with { type: "file" };\n`;

async function dashboardModule(folder: string): Promise<string> {
  const { buildDashboard } = await import(join(root, "src/app/dashboard.ts"));
  const files: readonly BuiltFile[] = await buildDashboard();
  const imports = files.map(({ name, bytes }, index) => {
    writeFileSync(join(folder, name), bytes);
    return embedded(`file${index}`, join(folder, name));
  });
  const entries = files.map(
    ({ name, contentType }, index) => `{ ...${JSON.stringify({ name, contentType })}, file: file${index} }`,
  );
  return `${imports.join("")}
const bytesOf = async (file) => new Uint8Array(await Bun.file(file).arrayBuffer());
export const buildDashboard = () => Promise.all([${entries.join(", ")}].map(
  async ({ file, ...entry }) => ({ ...entry, bytes: await bytesOf(file) })));
`;
}

async function docsModule(folder: string): Promise<string> {
  const { buildDocs } = await import(join(root, "src/docs/site.ts"));
  const { pages, notFound, files } = await buildDocs();
  const file = join(folder, "docs.json");
  const texts = (files as readonly BuiltFile[]).map(({ bytes, ...rest }) => ({
    ...rest,
    base64: Buffer.from(bytes).toString("base64"),
  }));
  writeFileSync(file, JSON.stringify({ pages: [...pages], notFound, files: texts }));
  return `${embedded("file", file)}
export async function buildDocs() {
  const { pages, notFound, files } = await Bun.file(file).json();
  const bytesOf = ({ base64, ...rest }) => ({ ...rest, bytes: new Uint8Array(Buffer.from(base64, "base64")) });
  return { pages: new Map(pages), notFound, files: files.map(bytesOf) };
}
`;
}

async function sdkModule(folder: string): Promise<string> {
  const { sdkPackage } = await import(join(root, "src/cli/sdk-package.ts"));
  const file = join(folder, "sdk.tgz");
  writeFileSync(file, await sdkPackage());
  return `${embedded("file", file)}
export const sdkPackage = async () => new Uint8Array(await Bun.file(file).arrayBuffer());
`;
}

function licencesModule(folder: string): string {
  writeSbom(folder);
  return `${embedded("file", join(folder, licencesName))}
export const licenceText = () => Bun.file(file).text();
`;
}

async function pagesModule(): Promise<string> {
  const { pageFiles } = await import(join(root, "src/cli/mcp/page-text.ts"));
  const texts = Object.entries<string>(pageFiles).map(([topic, file]) => [
    topic,
    readFileSync(join(root, file), "utf8"),
  ]);
  return `const texts = ${JSON.stringify(Object.fromEntries(texts))};
export const pageText = (topic) => texts[topic];
`;
}

/** Modules that read the tree or node_modules while they run, as they are in the executable. */
async function ownModules(folder: string): Promise<ReadonlyMap<string, string>> {
  const [dashboard, docs, sdk, pages] = await Promise.all([
    dashboardModule(folder),
    docsModule(folder),
    sdkModule(folder),
    pagesModule(),
  ]);
  const libsql = Bun.resolveSync("libsql", join(root, "src/store"));
  const parser = join(dirname(Bun.resolveSync("libpg-query", root)), "libpg-query.js");
  const addon = Bun.resolveSync(addonPackage(), dirname(libsql));
  return new Map([
    [join(root, "src/app/dashboard.ts"), dashboard],
    [join(root, "src/docs/site.ts"), docs],
    [join(root, "src/cli/sdk-package.ts"), sdk],
    [join(root, "src/cli/mcp/page-text.ts"), pages],
    [join(root, "src/cli/licence-text.ts"), licencesModule(folder)],
    // The name of the addon's package is put together at run time, where no bundler sees it.
    [libsql, edited(libsql, "requireNative();", `require(${JSON.stringify(addon)});`)],
    [parser, edited(parser, 'locateFile("libpg-query.wasm")', 'require("./libpg-query.wasm")')],
  ]);
}

/** The executable starts itself for a process that works for one environment (store/libsql-seat.ts). */
const entryText = `if (process.argv[2] === "environment-program")
  await (await import(${JSON.stringify(join(root, "src/store/libsql-program.ts"))})).main();
else await import(${JSON.stringify(join(root, "src/main.ts"))});
`;

async function build(folder: string): Promise<void> {
  const modules = await ownModules(folder);
  const entry = join(folder, "svc.ts");
  writeFileSync(entry, entryText);
  writeSbom(dirname(target));
  await Bun.build({
    entrypoints: [entry],
    target: "bun",
    format: "esm",
    bytecode: true,
    // Names stay: errors and metrics have them.
    minify: { whitespace: true, syntax: true },
    loader: { ".wasm": "file" },
    // A folder that the server starts in has no say in how it runs.
    compile: {
      ...{ outfile: target, autoloadBunfig: false, autoloadDotenv: false },
      ...{ autoloadTsconfig: false, autoloadPackageJson: false },
    },
    plugins: [
      {
        name: "what the executable has inside",
        setup: (setup) => {
          setup.onLoad({ filter: /\.(ts|js)$/ }, ({ path, loader }) => {
            const contents = modules.get(path);
            return contents === undefined ? undefined : { contents, loader };
          });
        },
      },
    ],
  });
}

const folder = mkdtempSync(join(tmpdir(), "svc-binary-"));
try {
  await build(folder);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
console.log(target);
