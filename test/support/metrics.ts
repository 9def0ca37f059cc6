/** The samples of Prometheus' text form, by name and labels as they are written. */
export function samplesOf(text: string): Record<string, number> {
  const samples: Record<string, number> = {};
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const end = line.lastIndexOf(" ");
    samples[line.slice(0, end)] = Number(line.slice(end + 1));
  }
  return samples;
}
