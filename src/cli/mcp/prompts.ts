import type { GetPromptResult, Prompt } from "@modelcontextprotocol/sdk/types.js";

interface SvcPrompt extends Omit<Prompt, "name"> {
  steps: string;
}

const about = (description: string) => [{ name: "about", description, required: false }];

const prompts: Readonly<Record<string, SvcPrompt>> = {
  find_out_why: {
    description: "Find out why runs fail or do not move.",
    arguments: about("What was seen, such as `orders fail since noon`."),
    steps: `1. svc_error_groups: which failures look alike, since when, of which function; svc_list_runs with status failed or waiting shows single runs.
2. svc_why with one run of the largest group: what failed and what may be done. svc_get_run, svc_get_run_steps and svc_run_logs have the input, the steps and what the handler wrote.
3. Compare with a run that completed: what differs in input, version or time? svc_search_docs explains words and errors.
4. Say the cause, how many runs it concerns, and the smallest repair. Change nothing yet.`,
  },
  repair: {
    description: "Repair failed runs, after a look at what would be done.",
    arguments: about("Which runs, and what is wrong with them."),
    steps: `1. Know the cause first (prompt find_out_why). Runs fail again while their code or what they call is broken.
2. One run: svc_preview_resume says which steps would run again; svc_resume_run lets it go on. Where a step's output is wrong, svc_patch_step replaces it first, with a reason.
3. Many runs: svc_preview_repair with an action and a filter says how many; show that to the person, then svc_start_repair with the same filter, a reason and confirm.
4. svc_get_repair until it is done, then svc_list_runs: say what completed and what failed again.`,
  },
};

export const listedPrompts = (): Prompt[] =>
  Object.entries(prompts).map(([name, { steps: _steps, ...prompt }]) => ({ name, ...prompt }));

/** Undefined where there is none of that name. */
export function promptOf(name: string, given: Readonly<Record<string, string>>): GetPromptResult | undefined {
  if (!Object.hasOwn(prompts, name)) return undefined;
  const { description, steps } = prompts[name]!;
  const asked = given.about ? `What is known: ${given.about}\n\n` : "";
  const text = `${description}\n\n${asked}${steps}`;
  return { description, messages: [{ role: "user", content: { type: "text", text } }] };
}
