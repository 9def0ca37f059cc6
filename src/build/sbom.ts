/**
 * `bun run build:sbom [FOLDER]`: what ships beside our own code, without a network. `sbom.json` lists the
 * packages (CycloneDX), `LICENSES.txt` has their licences.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { licencePage, runtimeLicence } from "./licences.ts";
import { type ShippedPackage, shippedPackages } from "./packages.ts";

const root = join(import.meta.dir, "../..");

const addressOf = ({ name, version }: { name: string; version: string }): string =>
  `pkg:npm/${name.replace("@", "%40")}@${version}`;

const licencesOf = (license: string) =>
  / (AND|OR) /.test(license) ? [{ expression: license }] : [{ license: { id: license } }];

function componentOf(one: ShippedPackage) {
  const { name, version, license, sha512, isPatched } = one;
  return {
    ...{ type: "library", "bom-ref": addressOf(one), name, version, purl: addressOf(one) },
    hashes: [{ alg: "SHA-512", content: sha512 }],
    licenses: licencesOf(license),
    ...(isPatched && { pedigree: { patches: [{ type: "unofficial" }] } }),
  };
}

function sbomOf(packages: ReadonlyMap<string, ShippedPackage>) {
  const { name, version, dependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const own = addressOf({ name, version });
  const runtime = addressOf({ name: "bun", version: Bun.version });
  const addressAt = (place: string) => addressOf(packages.get(place)!);
  const needs = (ref: string, places: readonly string[], also: readonly string[] = []) => ({
    ...{ ref, dependsOn: [...new Set([...places.map(addressAt), ...also])].sort() },
  });
  return {
    ...{ bomFormat: "CycloneDX", specVersion: "1.6", version: 1 },
    metadata: { component: { type: "application", "bom-ref": own, name, version, purl: own } },
    components: [
      {
        ...{ type: "platform", "bom-ref": runtime, name: "bun", version: Bun.version, purl: runtime },
        licenses: licencesOf(runtimeLicence),
      },
      ...new Map([...packages.values()].map((one) => [addressOf(one), componentOf(one)])).values(),
    ],
    dependencies: [
      needs(own, Object.keys(dependencies), [runtime]),
      needs(runtime, []),
      ...new Map(
        [...packages].map(([place, one]) => [addressAt(place), needs(addressAt(place), one.needs)]),
      ).values(),
    ],
  };
}

export const licencesName = "LICENSES.txt";

/** Writes both files into a folder. */
export function writeSbom(folder: string): void {
  const packages = shippedPackages();
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "sbom.json"), `${JSON.stringify(sbomOf(packages), null, 2)}\n`);
  writeFileSync(join(folder, licencesName), licencePage(packages));
}

if (import.meta.main) {
  const target = resolve(process.argv[2] ?? join(root, "dist"));
  writeSbom(target);
  console.log(target);
}
