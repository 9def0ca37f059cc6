import type { Law } from "./tidy-law.ts";
import { matches, type Rule, within } from "./tidy-rules.ts";

/** Programs of their own, and the two places that are the ends of a process: what they write goes through `shownText`. */
const aside = within(
  ...["src/sdk/", "src/demo/", "src/build/", "src/dashboard/"],
  ...["src/cli/process-io.ts", "src/kit/log-lines.ts"],
);
const rawWrite =
  /\bconsole\.\w+\(|\{[^}]*\bstd(?:out|err)\b[^}]*\} = process\b|\bprocess\.std(?:out|err)\)?\.write\((?!"", |shownText\(|`svc: \$\{shownText\()/g;

/** A terminal obeys what it gets, and names, errors and data are written by others. */
const writerBreaches: Rule = (sources) =>
  matches(
    sources.filter((one) => !aside(one)),
    rawWrite,
    (found) => `a terminal gets it: write by an Io, or as shownText: ${found}`,
    (text) => text,
  );

const keyBreaches: Rule = (sources) =>
  matches(
    sources.filter(within("src/cli/")),
    /\bcreateClient\((?![^)]*\bapiKey\b)/g,
    () => "a client of a command says its key, or that it has none: a variable's may be for another server",
  );

export const cliLaws: Omit<Law, "over">[] = [
  {
    name: "a terminal gets shown text",
    rule: writerBreaches,
    bad: [
      ["src/cli/tail.ts", "\nprocess.stdout.write(line);", 2],
      ["src/app/serve.ts", "(text ? process.stdout : process.stderr).write(banner);", 1],
      ["src/edge/http.ts", "console.log(name);", 1],
      ["src/cli/dev.ts", "const { stdout } = process;", 1],
    ],
    good: [
      ["src/main.ts", `process.stderr.write(\`svc: \${shownText(line)}\\n\`);`],
      ["src/cli/process-io.ts", "process.stdout.write(text);"],
      ["src/sdk/wire/log.ts", "console.error(line);"],
    ],
  },
  {
    name: "a command's client says its key",
    rule: keyBreaches,
    bad: [["src/cli/dev.ts", "\nconst client = createClient({ url });", 2]],
    good: [["src/cli/dev.ts", 'const client = createClient({ url, apiKey: "" });']],
  },
];
