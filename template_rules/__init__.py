"""Our own checks on synthesised CloudFormation templates: one small pure function a rule, no CDK,
no AWS, no I/O.

finding      what a rule says
values       what a template's value is once its intrinsics are resolved, and what is unknown until
deployment
intrinsics   Ref, Fn::Sub and their kind
template     one template: resources, references, what names what
catalogue    what AWS takes, from `data/`
*_rules      the rules, by what they are about
checking     every rule on every template, and what was acknowledged
"""
