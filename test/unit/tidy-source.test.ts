import { expect, test } from "bun:test";
import { codeOf, importsOf } from "../support/tidy-source.ts";

test("the reader of sources finds every kind of import and no other text", () => {
  const text = `import "./a.ts";
import one, { two } from "./b.ts";
import type { Three } from 'elysia';
export { four } from "./c.ts";
import {
  type Five,
  six,
} from "../d/e.ts";
/* import "./no.ts" */ const late = () => import("./f.ts");
const said = \`import "./no.ts" \${import("./g.ts")} "\`;
const slash = [1 / 2, /["'\`]/, 3 / 4];
export type { Seven } from "./h.ts";
`;
  const found = importsOf({ path: "src/x/y.ts", text });
  expect(
    found.map(({ target, typeOnly, line }) => `${line} ${target}${typeOnly ? " type" : ""}`).sort(),
  ).toEqual(
    [
      "1 src/x/a.ts",
      "2 src/x/b.ts",
      "3 elysia type",
      "4 src/x/c.ts",
      "8 src/d/e.ts",
      "9 src/x/f.ts",
      "10 src/x/g.ts",
      "12 src/x/h.ts type",
    ].sort(),
  );
  expect(codeOf(text)).toHaveLength(text.length);
});
