// GitHub's own parser of workflows: prints every error of the files that are named, a line each.
import { readFileSync } from "node:fs";
import { register } from "node:module";

// The package imports JSON without the attribute that Node asks for.
const hook = `export const load = (url, context, next) => next(url, url.endsWith(".json")
  ? { ...context, importAttributes: { type: "json" } } : context);`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

const { parseWorkflow, convertWorkflowTemplate, NoOperationTraceWriter } = await import(
  "@actions/workflow-parser"
);
for (const name of process.argv.slice(2)) {
  const file = { name, content: readFileSync(name, "utf8") };
  const { context, value } = parseWorkflow(file, new NoOperationTraceWriter());
  const template = value ? await convertWorkflowTemplate(context, value) : { errors: [] };
  const errors = [
    ...context.errors.getErrors().map((error) => error.message),
    ...(template.errors ?? []).map((error) => error.Message),
  ];
  for (const error of new Set(errors)) console.log(error);
}
