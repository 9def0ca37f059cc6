import { join } from "node:path";
import { configurationTable } from "../../src/settings/settings.ts";

export const readmePath = join(import.meta.dir, "../../README.md");

/** The README with the table of settings as the code has it. Throws when its marks are gone. */
export function withSettings(readme: string): string {
  const marks = /(<!-- settings: [^\n]*-->\n)[\s\S]*?(<!-- \/settings -->)/;
  if (!marks.test(readme)) throw new Error("README.md has lost the marks around its table of settings");
  return readme.replace(
    marks,
    (_, begin: string, end: string) => `${begin}${configurationTable().trim()}\n${end}`,
  );
}

if (import.meta.main) await Bun.write(readmePath, withSettings(await Bun.file(readmePath).text()));
