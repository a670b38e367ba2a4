"""SageMaker training jobs, and the state machines that start them and builds."""
