import { existsSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { findProgram, removeFolder, run } from "./process.ts";

const root = resolve(import.meta.dir, "../..");
const chart = join(root, "cluster/helm");
/** Debian's packages of Go libraries stand here. */
const goPath = "/usr/share/gocode";

export const findGo = (): string => findProgram(["go", "/usr/lib/go/bin/go"], "golang-go");

const libraries: Record<string, string> = {
  "golang-github-masterminds-sprig-dev": "github.com/Masterminds/sprig",
  "golang-github-xeipuuv-gojsonschema-dev": "github.com/xeipuuv/gojsonschema",
  "golang-k8s-sigs-yaml-dev": "sigs.k8s.io/yaml",
};

/** Packages of Debian that the renderer is built with. */
export const goLibraries: readonly string[] = Object.keys(libraries);

export function requireGoLibrary(debianPackage: string): void {
  if (existsSync(join(goPath, "src", libraries[debianPackage]!))) return;
  throw new Error(`${libraries[debianPackage]} was not found. Install it: apt-get install ${debianPackage}`);
}

export interface Release {
  name: string;
  namespace: string;
  /** Of `cluster/helm/examples`. */
  files?: readonly string[];
  values?: object;
}

export interface Rendered {
  /** By the path of the template. */
  documents?: Record<string, string>;
  error?: string;
}

export interface Helm {
  /** What Helm makes of the chart, for each of the releases. */
  render(releases: readonly Release[]): Promise<Rendered[]>;
  stop(): Promise<void>;
}

/** Builds the renderer of `helm/main.go`; it needs no network. */
export async function buildHelm(): Promise<Helm> {
  for (const debianPackage of goLibraries) requireGoLibrary(debianPackage);
  const folder = await mkdtemp(join(tmpdir(), "svc-helm-"));
  const program = join(folder, "helm");
  const environment = ["GO111MODULE=off", `GOPATH=${goPath}`, `GOCACHE=${join(folder, "cache")}`];
  await run(["env", ...environment, findGo(), "build", "-o", program, join(import.meta.dir, "helm/main.go")]);
  return {
    async render(releases) {
      const asked = releases.map(({ files = [], ...rest }) => ({
        ...rest,
        files: files.map((name) => join(chart, "examples", name)),
      }));
      const child = Bun.spawn([program, chart], { stdin: new Blob([JSON.stringify(asked)]), stderr: "pipe" });
      const [text, mistake] = await Promise.all([
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
      ]);
      if ((await child.exited) !== 0) throw new Error(mistake);
      return JSON.parse(text) as Rendered[];
    },
    stop: () => removeFolder(folder),
  };
}
