import { bytes, counted } from "../../lib/format.ts";
import { getOutputs, type RunView } from "../../lib/runs.ts";
import { Empty, Section, Text } from "../../ui/basics.tsx";
import { ReadBeside } from "./read-beside.tsx";

/** The ends of what the handler writes to its outputs. */
export const Outputs = ({ run }: { run: RunView }) => (
  <ReadBeside run={run} read={getOutputs}>
    {(outputs) =>
      outputs.length === 0 ? (
        <Empty
          title="Its handler wrote to no output"
          says="What a handler writes to an output is shown here."
          docs="outputs"
        />
      ) : (
        outputs.map(({ name, chunks, bytes: size, tail }) => (
          <Section key={name} title={`Output ${name}`}>
            <p class="faint">{`${counted(chunks, "chunk")}, ${bytes(size)}. What was written last:`}</p>
            <Text of={tail} in="p" class="log-text" />
          </Section>
        ))
      )
    }
  </ReadBeside>
);
