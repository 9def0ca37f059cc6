import { Argument, type Command } from "commander";
import { type Io, usage } from "./io.ts";

/** The command that the scripts below ask; it is not for people. */
export const completionWord = "__complete";

const scripts: Readonly<Record<string, string>> = {
  bash: `_svc() {
  local IFS=$'\\n'
  COMPREPLY=($(svc ${completionWord} "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _svc svc
`,
  zsh: `#compdef svc
_svc() {
  local -a found
  found=("\${(@f)$(svc ${completionWord} "\${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
  compadd -a found
}
compdef _svc svc
`,
  fish: `complete -c svc -f -a '(svc ${completionWord} (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`,
};

/** What the last word may become, one a line. */
export function completions(program: Command, words: readonly string[]): string {
  const last = words.at(-1) ?? "";
  let command = program;
  for (const word of words.slice(0, -1))
    command = command.commands.find((one) => one.name() === word || one.aliases().includes(word)) ?? command;
  const known = last.startsWith("-")
    ? [...command.options, ...program.options].map(({ long }) => long ?? "")
    : [
        ...command.commands.map((one) => one.name()),
        ...command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices),
      ];
  return [...new Set(known)]
    .filter((one) => one.startsWith(last) && one !== "")
    .map((one) => `${one}\n`)
    .join("");
}

const shells = Object.keys(scripts);

function shellOf(word: string): string {
  if (!shells.includes(word)) throw usage(`no completion for ${word}: one of ${shells.join(", ")}`);
  return word;
}

export function addCompletion(program: Command, io: Io): void {
  program
    .command("completion")
    .addArgument(new Argument("<shell>").choices(shells).argParser(shellOf))
    .description("A script for bash, zsh or fish: source <(svc completion bash)")
    .action((shell: string) => io.out(scripts[shell]!));
}
