"""The adapter for AMQP 0-9-1 (RabbitMQ, Qpid Broker-J), on the client library aiormq."""
