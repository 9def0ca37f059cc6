import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "../..");

/** A package that ships: package.json depends on it, or one that ships does. */
export interface ShippedPackage {
  name: string;
  version: string;
  /** In SPDX's words. */
  license: string;
  author?: string;
  /** Of its archive, as bun.lock has it; hexadecimal. */
  sha512: string;
  folder: string;
  isPatched: boolean;
  /** Places of those that it needs itself, keys of the map. */
  needs: readonly string[];
}

interface LockedNeeds {
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
  optionalPeers?: readonly string[];
}

/** `packages` are keyed by place: `a/b` is the `b` inside of `a` where another `b` stands at the top. */
interface Lock {
  workspaces: { "": { dependencies: Record<string, string>; devDependencies: Record<string, string> } };
  patchedDependencies?: Record<string, string>;
  packages: Record<string, [named: string, registry: string, needs: LockedNeeds, integrity: string]>;
}

interface Manifest {
  name: string;
  version: string;
  license?: string | { type?: string };
  author?: string | { name?: string };
}

/** `@a/b/c` has two names. */
const namesOf = (place: string): string[] => place.match(/(@[^/]+\/)?[^/]+/g) ?? [];

const folderOf = (place: string): string =>
  join(root, ...namesOf(place).flatMap((name) => ["node_modules", name]));

/** Where a package finds another one: inside of itself, or of those around it. */
function placeOf(lock: Lock, name: string, from: string): string | undefined {
  const around = namesOf(from);
  for (let depth = around.length; depth >= 0; depth--) {
    const place = [...around.slice(0, depth), name].join("/");
    if (place in lock.packages) return place;
  }
  return undefined;
}

/** Packages it cannot do without, or has on this platform. A peer that only our checks need serves types. */
function needsOf(lock: Lock, place: string): string[] {
  const {
    dependencies,
    optionalDependencies,
    peerDependencies,
    optionalPeers = [],
  } = lock.packages[place]![2];
  const checksOnly = lock.workspaces[""].devDependencies;
  const peers = Object.keys(peerDependencies ?? {}).filter((name) => !(name in checksOnly));
  const offered = Object.keys(optionalDependencies ?? {});
  const mayLack = new Set([...optionalPeers, ...offered]);
  const names = new Set([...Object.keys(dependencies ?? {}), ...offered, ...peers]);
  return [...names].flatMap((name) => {
    const found = placeOf(lock, name, place);
    if (found !== undefined && existsSync(folderOf(found))) return [found];
    if (mayLack.has(name)) return [];
    throw new Error(`${name}, which ${place} needs, is not installed: bun install`);
  });
}

function shippedPackage(lock: Lock, place: string): ShippedPackage {
  const [named, , , integrity] = lock.packages[place]!;
  const folder = folderOf(place);
  const { name, version, license, author }: Manifest = JSON.parse(
    readFileSync(join(folder, "package.json"), "utf8"),
  );
  if (`${name}@${version}` !== named)
    throw new Error(`${folder} has ${name}@${version}, bun.lock ${named}: bun install`);
  const [algorithm, digest] = integrity.split(/-(.*)/);
  if (algorithm !== "sha512" || !digest) throw new Error(`${named} has no sha512 in bun.lock`);
  const words = typeof license === "string" ? license : license?.type;
  if (!words) throw new Error(`${named} names no licence`);
  const by = typeof author === "string" ? author : author?.name;
  return {
    ...{ name, version, folder, license: words.replace(/^\((.*)\)$/, "$1") },
    sha512: Buffer.from(digest, "base64").toString("hex"),
    ...(by !== undefined && { author: by }),
    isPatched: named in (lock.patchedDependencies ?? {}),
    needs: needsOf(lock, place),
  };
}

/** By their place in node_modules, in order. */
export function shippedPackages(): ReadonlyMap<string, ShippedPackage> {
  const lock = Bun.JSONC.parse(readFileSync(join(root, "bun.lock"), "utf8")) as Lock;
  const shipped = new Map<string, ShippedPackage>();
  const unread = Object.keys(lock.workspaces[""].dependencies);
  for (let place = unread.pop(); place !== undefined; place = unread.pop()) {
    if (shipped.has(place)) continue;
    const one = shippedPackage(lock, place);
    shipped.set(place, one);
    unread.push(...one.needs);
  }
  return new Map([...shipped].sort(([a], [b]) => (a < b ? -1 : 1)));
}
