import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { ShippedPackage } from "./packages.ts";

/** What may ship. Another licence stops the build until somebody has read it. */
export const allowedLicences: ReadonlySet<string> = new Set([
  ...["MIT", "ISC", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Unlicense", "CC0-1.0"],
  // MIT without its condition: nodemailer.
  "MIT-0",
]);

/** Every one of `A AND B`, any of `A OR B`. An expression with both is refused: no package has one. */
export function isAllowed(expression: string): boolean {
  const choices = expression.split(" OR ");
  const parts = (choices.length > 1 ? choices : expression.split(" AND ")).map((one) => one.trim());
  return choices.length > 1
    ? parts.some((one) => allowedLicences.has(one))
    : parts.every((one) => allowedLicences.has(one));
}

const mit = `Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.`;

const bsd3 = `Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions are met:

1. Redistributions of source code must retain the above copyright notice, this
   list of conditions and the following disclaimer.

2. Redistributions in binary form must reproduce the above copyright notice,
   this list of conditions and the following disclaimer in the documentation
   and/or other materials provided with the distribution.

3. Neither the name of the copyright holder nor the names of its contributors
   may be used to endorse or promote products derived from this software
   without specific prior written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY
EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED
WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE
FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL
DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER
CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY,
OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.`;

/** Texts that are the same in every package, by a dependency of ours that has them. */
const examples: Readonly<Record<string, string>> = {
  "Apache-2.0": "@opentelemetry/api",
  Unlicense: "tweetnacl",
};

const licenceFile = /^(licen[cs]e|notice|copying)/i;

function ownTexts(folder: string): string[] {
  const names = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && licenceFile.test(entry.name))
    .map((entry) => entry.name);
  return names.sort().map((name) => readFileSync(join(folder, name), "utf8").trim());
}

type Packages = ReadonlyMap<string, ShippedPackage>;

/** What a licence says where its package has no file with it. */
function standardText(id: string, packages: Packages): string {
  const text = { MIT: mit, "BSD-3-Clause": bsd3 }[id];
  if (text !== undefined) return text;
  const example = examples[id] === undefined ? undefined : packages.get(examples[id]);
  const [found] = example ? ownTexts(example.folder) : [];
  if (found === undefined) throw new Error(`no text of the licence ${id} is at hand`);
  return found;
}

function textOf(one: ShippedPackage, packages: Packages): string {
  if (!isAllowed(one.license))
    throw new Error(`${one.name} ${one.version} has the licence ${one.license}, which is not allowed`);
  const own = ownTexts(one.folder);
  if (own.length > 0) return own.join("\n\n");
  const standard = one.license.split(/ AND | OR /).map((id) => standardText(id, packages));
  return [`Copyright ${one.author ?? "its authors"}`, ...standard].join("\n\n");
}

/** Of the runtime inside the executable: its own, that of JavaScriptCore, and that of tinycc. */
export const runtimeLicence = "MIT AND LGPL-2.0-or-later AND LGPL-2.1-or-later";

/** What the runtime says of itself and of what it links, without the heading of its site. */
function runtimeText(): string {
  const types = dirname(Bun.resolveSync("bun-types/package.json", import.meta.dir));
  const page = readFileSync(join(types, "docs/project/license.mdx"), "utf8");
  return page.replace(/^---\n[\s\S]*?\n---\n/, "").trim();
}

const line = "=".repeat(80);

/** Every package with its licence; packages with the same text share it. */
export function licencePage(packages: Packages): string {
  const sharing = new Map<string, string[]>([[runtimeText(), [`bun ${Bun.version}: ${runtimeLicence}`]]]);
  for (const one of packages.values()) {
    const text = textOf(one, packages);
    sharing.set(text, [...(sharing.get(text) ?? []), `${one.name} ${one.version}: ${one.license}`]);
  }
  const parts = [...sharing].map(([text, heads]) => `${heads.join("\n")}\n\n${text}\n`);
  return parts.join(`\n${line}\n\n`);
}
